#pragma once

namespace cohort::net {

// Descriptors with numbers from here on are left to the rest of the program: who accepts
// connections closes them, so that a flood of these does not keep it from opening its files.
int first_reserved_descriptor();

}  // namespace cohort::net
