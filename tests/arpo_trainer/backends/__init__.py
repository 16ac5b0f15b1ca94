"""Tests of the generation backends; the suite they share explains its failures as a test module does."""

import pytest

pytest.register_assert_rewrite("tests.arpo_trainer.backends.conformance")
