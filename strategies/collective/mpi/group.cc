#include "strategies/collective/mpi/group.h"

#include <algorithm>

namespace cohort::mpi {
namespace {

// How long ranks go on with what they were about to finish when the group ended: far longer than it
// takes those that are alive.
constexpr std::chrono::seconds kPatience{3};
// The same when the application has ended it, as when one of them is lost.
constexpr std::chrono::milliseconds kAbortedPatience{200};
constexpr std::chrono::milliseconds kFlush{200};
constexpr size_t kLongestPeer = 256;

int locked_new_tag(Transport& transport) {
  const auto lock = transport.lock();
  return transport.new_tag();
}

}  // namespace

Group::Group(std::shared_ptr<Transport> transport, uint64_t id, std::vector<int> members,
             std::vector<std::string> tasks, int rank)
    : transport_(std::move(transport)),
      id_(id),
      members_(std::move(members)),
      tasks_(std::move(tasks)),
      rank_(rank),
      tag_(locked_new_tag(*transport_)),
      inboxes_(members_.size()),
      messages_(*transport_, id, members_, rank, locked_new_tag(*transport_)) {
  const auto lock = transport_->lock();
  transport_->add(id_, this);
}

Group::~Group() {
  const auto lock = transport_->lock();
  messages_.forget_all();
  transport_->remove(id_);
}

std::string Group::name(int rank) const {
  const std::string number = str("rank ", rank);
  return tasks_.empty() ? number : str(tasks_[static_cast<size_t>(rank)], " (", number, ")");
}

std::string Group::peer(int rank) const {
  return tasks_.empty() ? name(rank) : tasks_[static_cast<size_t>(rank)];
}

Error Group::end(const Error& error) {
  const auto lock = transport_->lock();
  note_end(error, committed_);
  announce_end();
  return *error_;
}

Error Group::give_up(const Error& error, uint64_t call) {
  const auto lock = transport_->lock();
  committed_ = std::min(committed_, call);
  note_end(error, committed_);
  announce_end();
  return *error_;
}

void Group::abort(const Error& error) {
  const auto lock = transport_->lock();
  if (!error_) {
    hear_others();
    if (error_ && error_->code() == Code::kUnavailable) error_.reset();
  }
  note_end(error, committed_);
  patience_end_ = std::min(patience_end_, Clock::now() + kAbortedPatience);
  announce_end();
}

void Group::flush_end() {
  const auto is_told = [&] {
    return std::all_of(announcements_.begin(), announcements_.end(),
                       [](const TransferPtr& transfer) { return transfer->done; });
  };
  try {
    transport_->poll_until(Clock::now() + kFlush, is_told);
  } catch (const Error&) {  // MPI has ended, and the group with it
  }
}

TransferPtr Group::send(int rank, Control control) {
  control.rank = static_cast<uint32_t>(rank_);
  control.group = id_;
  return transport_->send(members_[static_cast<size_t>(rank)], control);
}

bool Group::patience_is_over() const { return error_ && Clock::now() > patience_end_; }

void Group::receive(int process, Control control) {
  const size_t rank = control.rank;
  if (rank >= members_.size() || members_[rank] != process) return;
  switch (control.kind) {
    case Control::Kind::kCall:
      return inboxes_[rank].calls.push_back(std::move(control));
    case Control::Kind::kText:
      return inboxes_[rank].texts.push_back(std::move(control));
    case Control::Kind::kMessage:
    case Control::Kind::kReply:
      return messages_.receive(static_cast<int>(rank), std::move(control));
    case Control::Kind::kEnd: {
      const std::string text(control.payload.begin(), control.payload.end());
      const size_t peer = std::min(text.size(), static_cast<size_t>(control.words[2]));
      return note_end(Error(code_of(control.words[1]), text.substr(peer), text.substr(0, peer)),
                      control.words[0]);
    }
    case Control::Kind::kLeave:
      return;
  }
}

void Group::hear_others() {
  try {
    transport_->progress();
  } catch (const Error&) {  // MPI has ended: nothing more comes
  }
}

void Group::note_end(Error error, uint64_t first_unfinished) {
  first_unfinished_ = std::min(first_unfinished_, first_unfinished);
  if (error_) return;
  error_ = std::move(error);
  patience_end_ = Clock::now() + kPatience;
}

void Group::announce_end() {
  if (committed_ >= announced_ || transport_->closed()) return;
  announced_ = committed_;
  const std::string peer = error_->peer().substr(0, kLongestPeer);
  const std::string text = (peer + error_->message()).substr(0, static_cast<size_t>(kInlineBytes));
  const Control control{.kind = Control::Kind::kEnd,
                        .words = {committed_, static_cast<uint64_t>(error_->code()), peer.size()},
                        .payload = std::vector<char>(text.begin(), text.end())};
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    try {
      announcements_.push_back(send(r, control));
    } catch (const Error&) {  // the others' time limits tell them
    }
  }
}

}  // namespace cohort::mpi
