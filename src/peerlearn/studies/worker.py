"""The process of one run: `python -m peerlearn.studies.worker`, with a job on standard input."""

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from peerlearn import __version__
from peerlearn.errors import UserError, out_of_memory
from peerlearn.studies.process import CODES, How, lifeline


def main() -> int:
    """Do the job that standard input describes; the exit code is one of `CODES`."""
    spec = lifeline()
    sys.argv = spec["command"]
    try:
        if spec["version"] != __version__:
            raise UserError(
                f"Peerlearn is {__version__} here, {spec['version']} where the sweep was started; "
                "install the same version on all machines"
            )
        return _code(_work(spec))
    except UserError as error:
        print(f"peerlearn: {error}", flush=True)
        return 2
    except (MemoryError, RuntimeError) as error:
        traceback.print_exc(file=sys.stdout)
        return _code("memory") if out_of_memory(error) else 1


def _code(how: How) -> int:
    return next(code for code, meaning in CODES.items() if meaning == how)


def _work(spec: dict[str, Any]) -> How:
    from peerlearn.config.names import REGISTRIES
    from peerlearn.experiment.images import Loader
    from peerlearn.experiment.progress import Console
    from peerlearn.experiment.run import Busy, Stopped, TakenOverError, run
    from peerlearn.records.folder import run_path
    from peerlearn.registry import load_plugin
    from peerlearn.studies.calibrate import calibrate
    from peerlearn.studies.job import resolved

    for path in spec["plugins"]:
        load_plugin(Path(path), REGISTRIES)
    wanted, out = resolved(spec), Path(spec["out"])
    if (key := run_path(Path(), wanted).as_posix()) != spec["key"]:
        raise UserError(f"{spec['key']} would be {key} here; are data sets or plug-ins others?")
    loader = Loader(Path(spec["root"]) if spec["root"] else None)
    if spec.get("calibrate"):
        print(json.dumps(calibrate(wanted, loader)._asdict()), flush=True)
        return "done"
    dead = tuple(spec["dead"]) if spec.get("dead") else None
    watcher = Console(sys.stdout)
    try:
        run(wanted, out, watcher, loader, wait=False, dead=dead, share=spec["share"])
    except (Busy, TakenOverError):
        return "busy"
    except Stopped:
        return "stopped"
    return "done"


if __name__ == "__main__":
    sys.exit(main())
