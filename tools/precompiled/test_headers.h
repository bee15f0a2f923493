// What most tests include besides.
#include "tools/precompiled/standard_headers.h"

#include <gtest/gtest.h>
