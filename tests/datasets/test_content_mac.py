"""The fingerprint of a file's content: blind to its arrangement, not to a change."""

import numpy as np
import pytest

from service.datasets import read
from tests.datasets.files import CSV, SCHEMA, content_mac, npz


@pytest.mark.parametrize(
    "content",
    [
        "age,city,note,y\nNA,Bonn,d,0\n30,Rom,c,1\n20,Köln,b,0\n10,Bonn,a,1\n",  # rows
        "y,note,city,age\n1,a,Bonn,10\n0,b,Köln,20\n1,c,Rom,30\n0,d,Bonn,NA\n",  # columns
        CSV.replace("Bonn", '"Bonn"').replace("\n", "\r\n"),  # quoting, line ends
        CSV.replace(",", " , "),  # blanks
        CSV.replace("10,", "1e1,").replace("NA", ""),  # spelling
    ],
)
def test_the_mac_ignores_the_arrangement(content, request_for, tmp_path):
    expected = content_mac(request_for(CSV), tmp_path)
    assert content_mac(request_for(content), tmp_path) == expected


def test_the_mac_ignores_schema_shuffle_and_block_size(request_for, tmp_path, monkeypatch):
    expected = content_mac(request_for(CSV), tmp_path)
    other = {
        "columns": [{"name": "note", "kind": "categorical", "categories": ["a"]},
                    {"name": "age", "kind": "ignored"}, {"name": "city", "kind": "ignored"}],
        "label": {"name": "y", "kind": "numeric", "lower": 0, "upper": 1},
    }  # fmt: skip
    monkeypatch.setattr(read, "BLOCK_CELLS", 1)
    assert content_mac(request_for(CSV, other, shuffle_key="ef" * 32), tmp_path) == expected


def test_renaming_the_columns_of_x_does_not_change_the_mac(request_for, tmp_path):
    content = npz(X=np.array([[1.0], [2.0]]), y=[1, 0])
    macs = {
        content_mac(
            request_for(content, SCHEMA | {"columns": [SCHEMA["columns"][0] | n]}), tmp_path
        )
        for n in ({"name": "age"}, {"name": "renamed"})
    }
    assert len(macs) == 1


@pytest.mark.parametrize(
    "content",
    [
        CSV.replace("10,", "11,"),  # a number
        CSV.replace("Rom", "rom"),  # a text
        CSV.replace(",d,", ",e,"),  # an ignored cell
        CSV + "10,Bonn,a,1\n",  # a repeated row
        CSV + "10,Bonn,a,1\n10,Bonn,a,1\n",  # which xor would cancel
        CSV.replace("10,Bonn,a,1\n20,Köln,b,0", "20,Bonn,a,1\n10,Köln,b,0"),  # pairing of cells
        CSV.replace(",note,", ",").replace(",a,", ",").replace(",b,", ",")
        .replace(",c,", ",").replace(",d,", ","),  # a column
    ],
)  # fmt: skip
def test_the_mac_notices_other_content(content, request_for, tmp_path):
    expected = content_mac(request_for(CSV), tmp_path)
    assert content_mac(request_for(content), tmp_path) != expected


def test_the_mac_depends_on_its_key(request_for, tmp_path):
    macs = {content_mac(request_for(CSV, content_key=k * 32), tmp_path) for k in ("00", "01")}
    assert len(macs) == 2
