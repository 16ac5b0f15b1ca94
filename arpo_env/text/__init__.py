"""Text helpers: Unicode normalisation and quoting of foreign text."""
