"""Tools at inference time (Tool-Star): a code debugger, a backtracer, and a refiner of long chains of thought."""
