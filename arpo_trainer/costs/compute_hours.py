"""Hours and price of a computation, from a speed that the user gives or that is assumed, and then said to be.

ComputeSpeed(tflops=125, hour_price=2.0).rows(3e19, devices=8)
"""

from __future__ import annotations

from dataclasses import dataclass

# 40 % of the 312 TFLOP/s (bfloat16, dense) that NVIDIA states for an A100; trainings report 30 to 50 %
ASSUMED_TFLOPS = 125.0
PASS, PASS_AND_BACK = 2, 6  # operations per parameter and token (Kaplan et al. 2020, "Scaling laws", section 2.1)


@dataclass(frozen=True)
class ComputeSpeed:
    """How fast a device computes, and what an hour of it costs.

    Attributes:
        tflops: operations per second that a device reaches, in units of 1e12; None assumes `ASSUMED_TFLOPS`.
        hour_price: US dollars for an hour of one device; None is not known.
    """

    tflops: float | None = None
    hour_price: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("--tflops", self.tflops), ("--hour-price", self.hour_price)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0, got {value}")

    def hours(self, operations: float, devices: int) -> float:
        """Return the hours that some operations take on several devices."""
        return operations / ((self.tflops or ASSUMED_TFLOPS) * 1e12 * devices) / 3600

    def rows(self, operations: float, devices: int, on_cpu: bool = False) -> list[tuple[str, str, str]]:
        """Return rows of a table: name, amount, remark.

        Args:
            operations: floating-point operations.
            devices: processes that compute, one per device.
            on_cpu: whether they are CPUs, whose speed is not assumed.
        """
        amount = f"{operations:.2e}"
        lines = [("floating-point operations", amount, "6 per parameter and token that is learnt from, 2 otherwise")]
        if on_cpu and self.tflops is None:
            return [*lines, ("hours", "not known", "give --tflops, the speed of this machine")]
        hours = self.hours(operations, devices)
        how = f"at {self.tflops:g} TFLOP/s" if self.tflops else f"assumption: {ASSUMED_TFLOPS:g} TFLOP/s (--tflops)"
        lines.append(("hours", f"{hours:,.2f}", f"{devices} device{'s' * (devices > 1)}, {how} each"))
        price = "not known" if self.hour_price is None else f"{hours * devices * self.hour_price:,.2f} USD"
        each = "give --hour-price" if self.hour_price is None else f"{self.hour_price:g} USD for an hour of a device"
        return [*lines, ("price", price, each)]
