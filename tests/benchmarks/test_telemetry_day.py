from __future__ import annotations

from benchmarks.telemetry_day import main


def test_short_day(capsys):
    main(["--seconds", "400"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["writing", "packing", "labelling", "conservation"]
    assert "2,000 jobs by 3,200 samples" in lines[2]
