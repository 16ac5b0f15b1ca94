"""Hours and prices of computations whose operations are known; nothing heavy is imported, so that commands can."""

from __future__ import annotations

from dataclasses import dataclass

# 40 % of the 312 TFLOP/s (bfloat16, dense) that NVIDIA states for an A100; trainings report 30 to 50 %
ASSUMED_TFLOPS = 125.0
PASS, PASS_AND_BACK = 2, 6  # operations per parameter and token (Kaplan et al. 2020, "Scaling laws", section 2.1)
Line = tuple[str, str, str]  # of a table: name, amount, remark; a heading has a name only


@dataclass(frozen=True)
class ComputeSpeed:
    """How fast a device computes, and what an hour of it costs.

    Attributes:
        tflops: TFLOP/s that a device reaches, for --dry-run
        hour_price: price of a device's hour in US dollars, for --dry-run
    """

    tflops: float | None = None
    hour_price: float | None = None

    def rows(self, operations: float, devices: int, on_cpu: bool = False) -> list[Line]:
        """Return rows of a table for some operations on several devices, or on CPUs, whose speed is not assumed."""
        for name, value in (("--tflops", self.tflops), ("--hour-price", self.hour_price)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0, got {value}")
        remark = "6 per parameter and token that is learnt from, 2 otherwise"
        lines = [("floating-point operations", f"{operations:.2e}", remark)]
        if on_cpu and self.tflops is None:
            return [*lines, ("hours", "not known", "give --tflops, the speed of this machine")]
        hours = operations / ((self.tflops or ASSUMED_TFLOPS) * 1e12 * devices) / 3600
        how = f"at {self.tflops:g} TFLOP/s" if self.tflops else f"assumption: {ASSUMED_TFLOPS:g} TFLOP/s (--tflops)"
        lines.append(("hours", f"{hours:,.2f}", f"{devices} device{'s' * (devices > 1)}, {how} each"))
        if self.hour_price is None:
            return [*lines, ("price", "not known", "give --hour-price")]
        price = f"{hours * devices * self.hour_price:,.2f} USD"
        return [*lines, ("price", price, f"{self.hour_price:g} USD for an hour of a device")]
