#pragma once

#include <string>
#include <string_view>

namespace cohort {

// `text` with all but printable ASCII escaped as \xNN, so that it stays on one line whatever it is.
std::string escaped(std::string_view text);

// `text` in double quotes, for messages: escaped, and shortened to some 60 bytes, so that an error
// stays one readable line whatever bytes it speaks of.
std::string quote(std::string_view text);

// `text`, which a stranger may have sent, fit for one line of a terminal: control characters, of
// ASCII as of UTF-8, are shown as '?'.
std::string printable(std::string_view text);

// The same for text of several lines, which stay such.
std::string printable_lines(std::string_view text);

}  // namespace cohort
