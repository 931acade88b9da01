"""systemd over D-Bus. Imports `api` only."""
