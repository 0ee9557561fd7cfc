"""What the performance claims are measured with.  Nothing here is imported by the product."""
