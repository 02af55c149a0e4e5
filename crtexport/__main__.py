"""``python -m crtexport``"""

import sys

from crtexport.cli.main import main

sys.exit(main())
