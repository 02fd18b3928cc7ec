"""The loop of training and rollout: its steady state in closed form, and a simulation that knows no formula."""
