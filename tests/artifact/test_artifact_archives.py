"""Files of every released schema version stay readable, with the content that they were given."""

import numpy as np
import pytest

from costar_cli.files import SCHEMA_VERSION, read_artifact, verify_artifact, write_artifact
from costar_cli.files.spec import KINDS
from tests.artifact.make_archives import ARCHIVES, contents

V1_0_DIGESTS = {
    "answers": "20bdf98b5e41647a7314de42d870e3142f960ffe4c0fb6258b2701b55b3cc118",
    "dataset": "3e601dcecf0564922fce357248f05e59394ec794c202d8d364fb599adfd1bbab",
    "encoder": "33e6ad70b0722330b9f8c1325dea6155727fb81fbb8c9934798999aff2ab6ddd",
    "estimates": "8effd0c067e39ee7bc613518cd34c685f8b263c016315a2a7ab19a9717efb3df",
    "evaluation": "3c0490ebcfb7b19a96733ea4fbd3d96abeb7e9d06a768cfc9b079c3aaed5f196",
    "evaluation-part": "a6ff27093dccd85360cf0e26ef41ebb5bd08ba8b71f75056165ecaf920e79c63",
    "model": "d5afac67ea392c54913209c8689b0ffac5c9f034fd1fb4a1d368fffd827438ff",
    "part": "18dc6f8ca3d0dfc18711b0d25c6cfa59dfe7cbcbc68d8ec7ade317f1f2234ec7",
    "refutation": "b5b45914a6c7e37da7c79dadfcceb3685bab3bcd525cfc9deb3753ba73768c18",
    "run-state": "7ef2767834ab89d538ce4042c1708d1e635c0f2524e1b6f9c90cd09470b764dd",
}


def test_this_schema_version_has_an_archive_of_every_kind():
    assert {path.stem for path in (ARCHIVES / f"v{SCHEMA_VERSION}").glob("*.h5")} == set(KINDS)


@pytest.mark.parametrize("kind", V1_0_DIGESTS)
def test_archives_of_schema_1_0_are_read(kind):
    path, content = ARCHIVES / "v1.0" / f"{kind}.h5", contents()[kind]
    artifact = read_artifact(path, kind=kind)
    assert verify_artifact(path).digest == artifact.digest == V1_0_DIGESTS[kind]
    assert (artifact.schema_version, artifact.meta, artifact.parents) == ("1.0", content["meta"], content["parents"])
    assert set(artifact.arrays) == set(content["arrays"])
    for name, array in content["arrays"].items():
        assert artifact.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(artifact.arrays[name], array)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_content_still_has_the_digest_of_the_archive(tmp_path, kind):
    written = write_artifact(tmp_path / "a.h5", kind=kind, **contents()[kind])
    assert written.digest == verify_artifact(ARCHIVES / f"v{SCHEMA_VERSION}" / f"{kind}.h5").digest
