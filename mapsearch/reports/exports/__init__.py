"""What is drawn rather than written: plots of fronts."""
