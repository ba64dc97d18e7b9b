"""docs/noise.md is what the command prints."""

from tools.noise import PATH, document


def test_the_noise_table_is_current():
    assert PATH.read_text() == document(), "run `make noise` and commit docs/noise.md"
