from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma

import pyarrow as pa
import pytest

from kilowait.energy.signals import read_carbon
from kilowait.errors import InputError, UnknownNameError

NEW_YEAR = 1640995200.0  # 2022-01-01 00:00 UTC

MAPS = (
    "Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct),Carbon Intensity gCO₂eq/kWh (LCA),"
    "Low Carbon Percentage,Renewable Percentage,Data Source,Data Estimated,Data Estimation Method\n"
    "2022-01-01 00:00:00,Great Britain,Great Britain,GB,50,90,86,60,elexon.co.uk,false,\n"
    "2022-01-01 01:00:00,Great Britain,Great Britain,GB,60,110,86,58,elexon.co.uk,true,TSA\n"
)


@pytest.fixture
def write_file(tmp_path):
    def write(content, name="signal.csv"):
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


# -- formats --------------------------------------------------------------------------------------------


def test_electricity_maps_has_both_scopes(write_file):
    path = write_file(MAPS)
    series = read_carbon(path)
    assert series.value.tolist() == [90, 110]
    assert series.edge_s.tolist() == [NEW_YEAR, NEW_YEAR + 3600, NEW_YEAR + 7200]
    assert series.unix_zero_s == 0 and series.unit == "g/kWh"
    expected = {
        "name": "carbon intensity",
        "location": "GB",
        "kind": "average",
        "scope": "life-cycle",
        "source": "signal.csv",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "format": "electricity-maps",
        "estimated": 1,
        "note": "1 of 2 values are estimates of the publisher",
    }
    assert {key: series.meta[key] for key in expected} == expected
    direct = read_carbon(path, carbon_scope="direct")
    assert direct.value.tolist() == [50, 60] and direct.meta["scope"] == "direct"
    assert direct.describe().startswith("carbon intensity, GB, average, direct, 2022-01-01 00:00 UTC to ")


def test_electricity_maps_with_other_column_names(write_file):
    text = MAPS.replace("(LCA)", "(Life cycle)").replace("Low Carbon Percentage", "CFE%")
    assert read_carbon(write_file(text)).value.tolist() == [90, 110]
    with pytest.raises(InputError, match="the file has no column of direct carbon intensity; it has Datetime"):
        read_carbon(write_file(text.replace("(direct)", "")), carbon_scope="direct")


def test_several_zones(write_file):
    text = MAPS + MAPS.split("\n", 1)[1].replace(",GB,", ",FR,").replace("90", "9").replace("110", "11")
    with pytest.raises(InputError, match=r"mixes 2 zones \(FR, GB\); give location="):
        read_carbon(write_file(text))
    series = read_carbon(write_file(text), location="FR")
    assert series.value.tolist() == [9, 11] and series.meta["location"] == "FR"
    with pytest.raises(InputError, match="the file has no zone 'DE'; it has FR, GB"):
        read_carbon(write_file(text), location="DE")


@pytest.mark.parametrize(
    "compress",
    [
        gzip.compress,
        bz2.compress,
        lzma.compress,
        lambda data: bytes(pa.Codec("zstd").compress(data, asbytes=True)),
        lambda data: b"\xef\xbb\xbf" + data,
    ],
)
def test_compressed_files(write_file, compress):
    data = compress(MAPS.encode())
    series = read_carbon(write_file(data, "whatever.bin"))
    assert series.value.tolist() == [90, 110]
    assert series.meta["sha256"] == hashlib.sha256(data).hexdigest()


def test_older_academic_format(write_file):
    text = (
        "datetime,local_datetime,timestamp,zone_name,carbon_intensity_avg,total_production_avg\n"
        "2020-01-01 00:00:00+00:00,x,1,SE,40,7\n2020-01-01 01:00:00+00:00,x,2,SE,50,8\n"
    )
    series = read_carbon(write_file(text))
    assert (series.value.tolist(), series.start_s) == ([40, 50], 1577836800)
    assert (series.meta["location"], series.meta["scope"]) == ("SE", "not stated")
    text = "timestamp,carbon_intensity_avg\n3600,40\n7200,50\n"
    assert read_carbon(write_file(text)).edge_s.tolist() == [3600, 7200, 10800]


def gb_row(hour, actual, forecast=100):
    times = {"from": f"2022-01-01T{hour:02d}:00Z", "to": f"2022-01-01T{hour:02d}:30Z"}
    return {**times, "intensity": {"forecast": forecast, "actual": actual, "index": "low"}}


def test_gb_api(write_file):
    rows = [gb_row(0, 80), gb_row(1, None), gb_row(1, None), gb_row(2, 90, None)]
    series = read_carbon(write_file({"data": rows}, "gb.json"))
    assert series.value.tolist() == [80, 100, 90]
    assert series.end_s - series.edge_s[-2] == 1800  # as long as the service says
    assert (series.meta["actual"], series.meta["forecast"]) == (2, 2)
    assert series.meta["note"] == "2 of 4 values are forecasts"
    assert (series.meta["location"], series.meta["kind"], series.meta["scope"]) == ("GB", "average", "direct")


@pytest.mark.parametrize("listed", [True, False])
def test_gb_api_one_region(write_file, listed):
    rows = [{"from": "2022-01-01T00:00Z", "to": "2022-01-01T00:30Z", "intensity": {"forecast": 7}}]
    inner = {"regionid": 13, "shortname": "London", "data": rows}
    series = read_carbon(write_file({"data": [inner] if listed else inner}, "gb.json"))
    assert series.value.tolist() == [7] and series.meta["location"] == "GB, London"


def test_gb_api_errors(write_file):
    regions = {"data": [{"from": "2022-01-01T00:00Z", "to": "2022-01-01T00:30Z", "regions": []}]}
    with pytest.raises(InputError, match="all regions; request one region"):
        read_carbon(write_file(regions, "gb.json"))
    with pytest.raises(InputError, match="an error response of a service, not data: .*400 Bad Request"):
        read_carbon(write_file({"error": {"code": "400 Bad Request", "message": "no"}}, "gb.json"))
    with pytest.raises(InputError, match="row 1, 'actual': 'x' is not a number; correct"):
        read_carbon(write_file({"data": [gb_row(0, "x")]}, "gb.json"))
    with pytest.raises(InputError, match="a row has no key 'to'"):
        read_carbon(write_file({"data": [gb_row(0, 1), {"from": "2022-01-01T00:30Z"}]}, "gb.json"))


def sdk_row(time, rating, location="eastus", duration="08:00"):
    return {"Location": location, "Time": time, "Rating": rating, "Duration": duration}


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"Emissions": rows}])
def test_carbon_aware_sdk(write_file, wrap):
    rows = [sdk_row("2022-01-01T01:00:00+01:00", 10), sdk_row("2022-01-01T08:00:00+00:00", 20)]
    series = read_carbon(write_file(wrap(rows), "sdk.json"))
    assert series.edge_s.tolist() == [NEW_YEAR, NEW_YEAR + 8 * 3600, NEW_YEAR + 16 * 3600]
    assert series.value.tolist() == [10, 20]
    assert (series.meta["location"], series.meta["kind"]) == ("eastus", "not stated")


def test_carbon_aware_sdk_responses_and_locations(write_file):
    rows = [sdk_row("2022-01-01T00:00Z", 10), sdk_row("2022-01-01T00:00Z", 99, "westus")]
    with pytest.raises(InputError, match=r"mixes 2 locations \(eastus, westus\); give location="):
        read_carbon(write_file(rows, "sdk.json"))
    assert read_carbon(write_file(rows, "sdk.json"), location="westus").value.tolist() == [99]
    small = [{key.lower(): value for key, value in sdk_row("2022-01-01T00:00Z", 5, duration="00:05:00").items()}]
    assert read_carbon(write_file(small, "sdk.json")).edge_s.tolist() == [NEW_YEAR, NEW_YEAR + 300]
    with pytest.raises(InputError, match="the duration 'long' is invalid; it must be HH:MM"):
        read_carbon(write_file([sdk_row("2022-01-01T00:00Z", 10, duration="long")], "sdk.json"))
    with pytest.raises(InputError, match="does not state the time zone"):
        read_carbon(write_file([sdk_row("2022-01-01T00:00", 10)], "sdk.json"))


def maps_row(hour, value, **extra):
    return {"zone": "DE", "carbonIntensity": value, "datetime": f"2022-01-01T{hour:02}:00:00.000Z", **extra}


def test_electricity_maps_api(write_file):
    rows = [maps_row(0, 300, isEstimated=True), maps_row(1, None), maps_row(2, 200, emissionFactorType="direct")]
    series = read_carbon(write_file({"zone": "DE", "history": rows}, "em.json"))
    assert series.value.tolist() == [300.0, 200.0] and series.edge_s[1] - series.edge_s[0] == 7200
    assert series.meta["location"] == "DE" and series.meta["format"] == "electricity-maps-api"
    assert (series.meta["kind"], series.meta["scope"], series.meta["estimated"]) == ("average", "direct", 1)
    plain = [{key: row[key] for key in ("carbonIntensity", "datetime")} for row in (maps_row(0, 1), maps_row(1, 2))]
    series = read_carbon(write_file({"zone": "FR", "temporalGranularity": "hourly", "data": plain}, "em.json"))
    assert series.meta["location"] == "FR" and series.meta["scope"] == "life-cycle"


def test_single_electricity_maps_value_lasts_an_hour(write_file):
    series = read_carbon(write_file(maps_row(5, 250), "em.json"))
    assert series.end_s - series.start_s == 3600 and series.value.tolist() == [250.0]


def test_electricity_maps_api_errors(write_file):
    with pytest.raises(InputError, match=r"mixes 2 zones \(DE, FR\)"):
        read_carbon(write_file({"data": [maps_row(0, 1), {**maps_row(1, 1), "zone": "FR"}]}, "em.json"))
    mixed = [maps_row(0, 1, emissionFactorType="direct"), maps_row(1, 1, emissionFactorType="lifecycle")]
    with pytest.raises(InputError, match="mixes 2 emissionFactorTypes"):
        read_carbon(write_file({"data": mixed}, "em.json"))


def watttime(units=None, **meta):
    rows = [{"point_time": f"2022-01-01T00:0{minute}:00+00:00", "value": 1000} for minute in (0, 5)]
    unit_field = {} if units is None else {"units": units}
    return {"data": rows, "meta": {"region": "CAISO_NORTH", "signal_type": "co2_moer", **unit_field, **meta}}


def test_watttime_pounds(write_file):
    series = read_carbon(write_file(watttime("lbs_co2_per_mwh", data_point_period_seconds=300), "w.json"))
    assert series.value.tolist() == [453.59237] * 2 and series.unit == "g/kWh"
    assert (series.meta["location"], series.meta["kind"]) == ("CAISO_NORTH", "marginal")
    assert read_carbon(write_file(watttime(), "w.json"), unit="lb/MWh").value.tolist() == [453.59237] * 2
    with pytest.raises(InputError, match=r"cannot read w.json: the file names no unit; give it, such as unit="):
        read_carbon(write_file(watttime(), "w.json"))
    with pytest.raises(InputError, match=r"mixed units: the file is in lb/MWh, but unit='g/kWh' was given"):
        read_carbon(write_file(watttime("lbs_co2_per_mwh"), "w.json"), unit="g/kWh")
    with pytest.raises(InputError, match="unknown unit of carbon intensity 'percent'; known are g, kg, t and lb"):
        read_carbon(write_file(watttime("percent"), "w.json"))


def test_lets_wait_awhile(write_file):
    text = "Time,Carbon Intensity\n2022-01-01 00:00:00,42.5\n2022-01-01 00:30:00,43\n"
    series = read_carbon(write_file(text))
    assert series.meta["format"] == "lets-wait-awhile"
    assert "times without a zone, taken as UTC" in series.describe()
    assert read_carbon(write_file(text), zone="Europe/Paris").start_s == NEW_YEAR - 3600


# -- plain tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("time,gCO2/kWh\n1640995200,100\n1640998800,200\n", {}),
        ("time (UTC);x g/kWh\n2022-01-01 00:00;100\n2022-01-01 01:00;200\n", {}),
        ("# made by hand\n\ntime\tkg/MWh\n2022-01-01T00:00Z\t100\n2022-01-01T01:00Z\t200\n", {}),
        ("1640995200,100\n1640998800,200\n", {"unit": "g/kWh"}),
        ("2022-01-01 01:00,0.1\n2022-01-01 02:00,0.2\n", {"unit": "kgCO2e/kWh", "zone": "+01:00"}),
        ("when,share,ci\n2022-01-01T00:00Z,1,100\n2022-01-01T01:00Z,2,200\n",
         {"unit": "g/kWh", "columns": {"time": "when", "value": "CI"}}),
        ("timestamp,temp,gCO2eq/kWh\n2022-01-01T00:00Z,1,100\n2022-01-01T01:00Z,2,200\n", {}),
        ("time,value,unit\n2022-01-01T00:00Z,100,g/kWh\n2022-01-01T01:00Z,200,g/kWh\n", {}),
        ("time,g/kWh\n2022-01-01 01:00:00+01:00,100\n2021-12-31 20:00:00-05:00,200\n", {}),
    ],
)  # fmt: skip
def test_plain_tables(write_file, text, options):
    series = read_carbon(write_file(text), **options)
    assert series.edge_s.tolist() == [NEW_YEAR, NEW_YEAR + 3600, NEW_YEAR + 7200]
    assert series.value.tolist() == [100, 200]
    assert series.meta["format"] == "csv"


def test_marginal_by_name(write_file):
    series = read_carbon(write_file("time,MOER lb/MWh\n0,1000\n300,2000\n"))
    assert series.meta["kind"] == "marginal" and series.value.tolist() == [453.59237, 907.18474]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("time,value\n0,1\n60,2\n", {}, "the file names no unit"),
        ("time,value,unit\n0,1,g/kWh\n60,2,lb/MWh\n", {}, r"mixes 2 units \(g/kWh, lb/MWh\); convert them to one"),
        ("time,g/kWh\n0,1\n60,2\n", {"unit": "lb/MWh"}, "mixed units: the file is in g/kWh, but unit='lb/MWh'"),
        ("time,x\n0,1\n60,2\n", {"unit": "stones"}, "unknown unit of carbon intensity 'stones'"),
        ("time,g/kWh\n0,1\n60,-2\n", {}, r"negative 1 time\(s\), first -2 g/kWh at 1970-01-01 00:01 UTC; correct"),
        ("time,g/kWh\n2022-01-01 00:00,1\n", {}, r"does not state the time zone of its times \('2022-01-01 00:00'\)"),
        ("time,g/kWh\n0,1\n60,abc\n", {}, "line 3, 'g/kWh': 'abc' is not a number; write"),
        ("time,a,b\n0,x,\n60,y,\n", {"unit": "g/kWh"}, r"0 columns could be the value \(none\); name them"),
        ("time,g/kWh\nsoon,1\n", {}, "line 2: 'soon' is not a time; write"),
        ("time,g/kWh\n0,1\n60\n", {}, "line 3 has 1 cells, and 'g/kWh' is column 2"),
        ("time,a,b\n0,1,2\n60,1,2\n", {"unit": "g/kWh"}, r"2 columns could be the value \(a, b\); name them"),
        ("x,y\n0,1\n", {"unit": "g/kWh"}, r"no column has the name of a time \(x, y\); name them"),
        ("time,y\n0,1\n", {"columns": {"value": "z"}}, "there is no column 'z'; the file has time, y"),
        ("time,y\n0,1\n", {"columns": {"when": "time"}}, "columns has the key 'when'"),
        ("time,g/kWh\n", {}, "has a header but no rows"),
        ("", {}, "is empty"),
        ("\x00\x01\x02", {}, "is not text"),
        ("[1, 2", {}, "is not valid JSON"),
        ("{}", {}, "no list of values"),
        ('{"data": [{"a": 1}]}', {}, "this JSON is in none of the supported formats"),
        ("time,g/kWh\n0,1\n", {"format": "gb-api"}, "is not JSON, and cannot be read as gb-api"),
        ("time,g/kWh\n0,1\n60,2\n", {"carbon_scope": "both"}, "scope is 'both'"),
    ],
)
def test_errors(write_file, text, options, message):
    with pytest.raises(InputError, match=message):
        read_carbon(write_file(text), **options)


def test_unreadable_files(write_file, tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_carbon(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="is damaged|is cut short"):
        read_carbon(write_file(gzip.compress(MAPS.encode())[:-20]))
    with pytest.raises(UnknownNameError, match="did you mean 'gb-api'"):
        read_carbon(write_file(MAPS), format="gb_api")


def test_gaps_and_blanks(write_file):
    rows = [f"{3600 * hour},{hour}" for hour in range(24) if hour not in (5, 6, 7, 8, 9)]
    text = "time,g/kWh\n" + "\n".join(rows)
    with pytest.raises(
        InputError, match=r"1 gap\(s\) longer than 10800 s .* 1970-01-01 04:00 UTC to 1970-01-01 10:00 UTC"
    ):
        read_carbon(write_file(text))
    assert float(read_carbon(write_file(text), gaps="hold").at(9 * 3600)) == 4
    assert float(read_carbon(write_file(text), gaps="interpolate").at(7 * 3600)) == 7
    blank = read_carbon(write_file(text.replace("\n39600,11\n", "\n39600,\n")), gaps="hold")
    assert float(blank.at(11.5 * 3600)) == 10 and blank.meta["samples"] == 18


# -- real files -----------------------------------------------------------------------------------------

MEANS = {
    "CA-ON_2022": 59.297,
    "CA-ON_2023": 72.847,
    "DE-LU_2022": 477.863,
    "DE-LU_2023": 366.972,
    "GB_2022": 221.977,
    "GB_2023": 187.533,
    "US-CAL-CISO_2022": 262.319,
    "US-CAL-CISO_2023": 260.748,
    "US-MIDA-PJM_2022": 424.500,
    "US-MIDA-PJM_2023": 392.403,
    "US-TEX-ERCO_2022": 399.530,
    "US-TEX-ERCO_2023": 380.549,
}


@pytest.mark.parametrize("name", MEANS)
def test_real_electricity_maps(data_dir, name):
    series = read_carbon(data_dir / "carbon" / f"{name}_hourly.csv.gz")
    assert len(series) == 8760 and series.end_s - series.start_s == 365 * 86400
    assert float(series.mean(series.start_s, series.end_s)) == pytest.approx(MEANS[name], abs=6e-4)
    direct = read_carbon(data_dir / "carbon" / f"{name}_hourly.csv.gz", carbon_scope="direct")
    assert direct.value.mean() < series.value.mean()


@pytest.mark.parametrize(("name", "mean"), [("ger", 313.4), ("gb", 212.9), ("fr", 56.3)])
def test_real_lets_wait_awhile(data_dir, name, mean):
    series = read_carbon(data_dir / "carbon" / "lets_wait_awhile" / f"{name}_ci.csv.gz")
    year = float(series.mean(1577836800, 1609459200))
    assert year == pytest.approx(mean, abs=0.051)
    assert series.meta["holes"] == 0
