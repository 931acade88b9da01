"""The retry barrier and the classes of errors (design section 5). May import `cri.api` and `api`."""
