#include "core/train/callbacks/writes.h"

#include <bit>

#include "core/base/notice.h"
#include "core/train/callbacks/moment.h"
#include "core/train/callbacks/state.h"

namespace cohort::callbacks {
namespace {

constexpr const char* kPath = "written path";
constexpr const char* kMoment = "written when";
constexpr const char* kCode = "refusal code";
constexpr const char* kMessage = "refusal";

std::string text_in(const CallbackState& state, const std::string& name) {
  const auto found = state.find(name);
  return found == state.end() ? "" : text_of(found->second);
}

}  // namespace

void Writes::begin() {
  path_.clear();
  moment_.clear();
  refusal_.reset();
  refused_in_a_row_ = 0;
}

void Writes::record(Training& training, const std::string& path,
                    const std::optional<Error>& refusal) {
  if (!refusal) {
    path_ = path;
    moment_ = moment(training);
    refusal_.reset();
    refused_in_a_row_ = 0;
    return;
  }
  refusal_ = Error(refusal->code(),
                   str(callback_, " could not write ", moment(training), ": ", refusal->message(),
                       "; ", last_written()),
                   refusal->peer());
  if (!std::has_single_bit(++refused_in_a_row_) || !training.model().strategy().is_chief()) return;
  const std::string times =
      refused_in_a_row_ > 1 ? str(" (", refused_in_a_row_, " times in a row)") : "";
  print_notice(str("warning: ", refusal_->message(), times, "\n"));
}

std::string Writes::last_written() const {
  if (path_.empty()) return "it has written nothing before";
  return str("what it has written ", moment_, " is still there: ", path_);
}

bool Writes::record_save(Training& training, const std::string& path,
                         const std::optional<Error>& refusal) {
  if (refusal) training.count_failed_save();
  record(training, path, refusal);
  return !refusal;
}

void Writes::end(Training& training) const {
  if (refusal_) training.fail_at_end(*refusal_);
}

CallbackState Writes::state() const {
  CallbackState state;
  if (!path_.empty()) {
    state[kPath] = tensor_of(path_);
    state[kMoment] = tensor_of(moment_);
  }
  if (refusal_) {
    state[kCode] = Tensor::scalar(static_cast<int64_t>(refusal_->code()));
    state[kMessage] = tensor_of(refusal_->message());
  }
  return state;
}

void Writes::restore(const CallbackState& state) {
  begin();
  path_ = text_in(state, kPath);
  moment_ = text_in(state, kMoment);
  if (const auto code = integer_in(state, kCode))
    refusal_ = Error(code_of(*code), text_in(state, kMessage));
}

}  // namespace cohort::callbacks
