"""What the measured programs share: the conversation with the driver. Imports nothing but Python's own."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any


async def serve(turn: Callable[[int], Awaitable[None]], finish: Callable[[], Any]) -> None:
    """Answer each line `COUNT` with the seconds that each of the next COUNT orders took, until input ends.

    Beside them stand the seconds of the processor that the process used for all of them.

    Then check that the last order was delivered: `finish()` returns the number of deliveries.
    """
    number = 0
    for line in sys.stdin:
        times = []
        gc.collect()
        processor = time.process_time()
        for _ in range(int(line)):
            start = time.perf_counter()
            await turn(number)
            times.append(time.perf_counter() - start)
            number += 1
        print(json.dumps([times, time.process_time() - processor]), flush=True)
    delivered = finish()
    if delivered != number:
        raise SystemExit(f"{number} orders were given and {delivered} deliveries counted")
