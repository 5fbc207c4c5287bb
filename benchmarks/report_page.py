"""The report page of a large run: seconds to write it and to open it in a browser, and its size.

    python -m benchmarks.report_page

The numbers of the runs (three methods, 5,000 questions each) are made up. "Opened" is measured by
the browser, Chromium without a window: from the start of the navigation until the questions are
drawn. The median of five visits is printed.
"""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from pathlib import Path

from jaxrag.evaluation.report.page import write_report
from tests import browser, hostile
from tests.evaluation import fabricate

QUESTIONS, VISITS = 5000, 5
METHODS = ("no_retrieval", "standard_rag", "dtr")
WATCH = """<script>
const look = setInterval(() => {
  if (!document.querySelector('details.question')) return;
  clearInterval(look);
  const milliseconds = performance.now().toFixed(0);
  fetch(`http://HOST/drawn-${milliseconds}`, {mode: 'no-cors'});
}, 5);
</script>""".replace("HOST", hostile.HOST)


def drawn(page: Path, directory: Path) -> float:
    """Seconds from the start of the navigation until the questions are drawn."""
    watched = browser.without_policy(page.read_text("utf-8")) + WATCH
    found = re.search(r"/drawn-(\d+)", browser.first_request(watched, directory))
    if found is None:
        raise RuntimeError("the page requested something else")
    return int(found[1]) / 1000


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        runs = [fabricate.run(root / name, name, n=QUESTIONS) for name in METHODS]
        began = time.perf_counter()
        write_report(runs, root / "report.html")
        written = time.perf_counter() - began
        size = (root / "report.html").stat().st_size
        print(f"{len(METHODS)} runs of {QUESTIONS:,} questions: written in {written:.1f} s")
        print(f"page: {size / 1e6:.1f} MB")
        if browser.CHROMIUM is None:
            print("not opened: there is no Chromium")
            return
        times = [drawn(root / "report.html", root / str(i)) for i in range(VISITS)]
        shown = ", ".join(f"{one:.2f}" for one in sorted(times))
        print(f"opened in {statistics.median(times):.2f} s (visits: {shown})")


if __name__ == "__main__":
    main()
