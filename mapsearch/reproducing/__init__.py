"""A solve as a folder of its inputs, its mapping and its answer, locked by content; and its repetition."""
