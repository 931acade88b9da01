"""Ten runs of `make fire` against the embedded server: the informers come out of the fire with what the server has."""

from __future__ import annotations

from tests.fire import embedded


def test_informers_come_out_of_the_fire_equal_to_the_server_and_leave_nothing_behind() -> None:
    embedded.run(range(10))
