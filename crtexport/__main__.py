"""``crtexport`` and ``python -m crtexport``"""

import sys


def run() -> None:
    """Runs the command and leaves with its exit code."""
    try:
        from crtexport.cli.main import main  # noqa: PLC0415
    except KeyboardInterrupt:  # before main could say so itself
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    sys.exit(main())


if __name__ == "__main__":
    run()
