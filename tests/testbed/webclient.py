"""Clients of a web server: python3 -m tests.testbed.webclient ADDRESS --clients N --seconds S [--rate R] [--seed N]

Each client asks for a page at most R times a second (0: again at once), with HTTP/1.0: a connection each, as WebSTONE does
(dissertation, 3.1.2). The pages are PAGES; which one is drawn by their weights. Prints one JSON line: [start, size, took] of each
answered request, in seconds of CLOCK_MONOTONIC and bytes, and how many have failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time

PAGES = {500: 35, 5_000: 50, 50_000: 14, 500_000: 1}
"""Bytes, and weight: WebSTONE's mix without its largest page, which comes once in a thousand times."""

LIMIT_SECONDS = 60.0
"""Of a request."""


def page(size: int) -> str:
    """The name of a page of so many bytes."""
    return f"page-{size}"


async def _get(address: str, size: int) -> bool:
    reader, writer = await asyncio.open_connection(address, 80)
    try:
        writer.write(f"GET /{page(size)} HTTP/1.0\r\n\r\n".encode())
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        return head.split(b" ", 2)[1:2] == [b"200"] and len(body) == size
    finally:
        writer.close()


async def _client(address: str, rate: float, end: float, chance: random.Random, found: list[tuple[float, int, float]]) -> int:
    failed = 0
    await asyncio.sleep(chance.random() / rate if rate else 0)
    while (begin := time.monotonic()) < end:
        size = chance.choices(list(PAGES), list(PAGES.values()))[0]
        try:
            well = await asyncio.wait_for(_get(address, size), LIMIT_SECONDS)
        except (OSError, asyncio.TimeoutError):
            well = False
        now = time.monotonic()
        if well:
            found.append((begin, size, now - begin))
        else:
            failed += 1
        if rate:
            await asyncio.sleep(max(0.0, begin + 1 / rate - now))
    return failed


async def _all(address: str, clients: int, rate: float, seconds: float, seed: int) -> dict[str, object]:
    found: list[tuple[float, int, float]] = []
    end = time.monotonic() + seconds
    chances = [random.Random(f"{seed}-{number}") for number in range(clients)]
    failed = await asyncio.gather(*(_client(address, rate, end, chance, found) for chance in chances))
    return {"requests": sorted(found), "failed": sum(failed)}


def main() -> None:
    """Exit status 0 whatever became of the requests."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.testbed.webclient", description="Clients of a web server.")
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=0, help="requests a second of each client, at most; 0: no limit")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(_all(given.address, given.clients, given.rate, given.seconds, given.seed))), flush=True)


if __name__ == "__main__":
    main()
