"""The scenarios: each a function that acts on a Lab and fills a Verdict; `catalog` numbers them."""
