#!/bin/sh
# Chromium and its driver for the test of the service's page, where they may be installed; otherwise that test says it is skipped.
if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing Debian's chromium and chromium-driver for the test of the page."
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1 && exit 0
fi
echo "No Chromium here, and it may not be installed: the test of the page will be skipped. On Debian: apt-get install chromium chromium-driver"
