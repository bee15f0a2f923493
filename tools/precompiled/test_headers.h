// What most tests include besides.
#include <gtest/gtest.h>

#include "tools/precompiled/standard_headers.h"
