#include "core/collective/stall_warning.h"

#include "core/base/error.h"
#include "core/base/notice.h"
#include "core/collective/communicator.h"

namespace cohort {

void StallWarning::say(const std::string& who, const std::string& call,
                       const std::string& missing) const {
  const std::string line =
      str("warning: ", who, " has waited for ", std::chrono::duration<double>(after).count(),
          " s in ", call, " for ", missing);
  if (notice)
    notice(line);
  else
    print_notice(line + "\n");
}

std::string describe_message(bool is_send, int tag) {
  return str(is_send ? "a send" : "a receive", tag == kAnyTag ? "" : str(" with tag ", tag));
}

}  // namespace cohort
