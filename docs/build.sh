#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the book's site, with the API reference and a search over both, in build/site. Needs no compiler: what comes from the program
# is in the pages (docs/site/generate.py). Installs mkdocs, its theme and Doxygen from Debian where they are missing.
#
# To read it: python3 -m http.server -d build/site, then http://localhost:8000 (the search asks for a server; all else does not).
set -euo pipefail
cd "$(dirname "$0")/.."

cmake/dependencies.sh --docs
pages=build/docs/pages
rm -rf build/docs build/site
mkdir -p "$pages"

(cat docs/Doxyfile; echo "OUTPUT_DIRECTORY = $pages"; echo "GENERATE_TAGFILE = build/docs/api.tag"; echo "WARN_IF_UNDOCUMENTED = NO") | doxygen -
python3 -B docs/site/assemble.py . "$pages" build/docs/api.tag
/usr/bin/mkdocs --quiet build --strict --config-file docs/site/mkdocs.yml  # Debian's
python3 -B docs/site/api_pages.py build/site build/docs/api.tag
python3 -B docs/site/assemble.py --search build/site build/docs/api.tag
echo "build/site/index.html"
