"""Router load: histograms, how uneven they are, what that means for a run, and experts on ranks."""
