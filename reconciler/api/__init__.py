"""Types and names of the API. Imports nothing of the project; everything may import it."""
