#include "strategies/collective/mpi/transport.h"

#include <algorithm>
#include <cstring>

#include "core/base/backoff.h"

namespace cohort::mpi {
namespace {

using std::chrono::milliseconds;

// A control message as MPI carries it; the payload follows.
struct Head {
  Control::Kind kind;
  uint32_t rank;
  uint64_t group;
  uint64_t words[4];
  uint64_t payload_bytes;
};
constexpr auto kHeadBytes = static_cast<int64_t>(sizeof(Head));

constexpr size_t kSlots = 32;
// All pieces that the ranks of one call have on their way to this one fit into a cache of today.
constexpr int64_t kAllPieces = int64_t{4} << 20;
constexpr int64_t kMinPiece = int64_t{16} << 10, kMaxPiece = int64_t{256} << 10;
// Sends that are left at the end are lost after this.
constexpr milliseconds kLastSends{500};

int64_t piece_bytes(int processes) {
  return std::clamp(kAllPieces / processes, kMinPiece, kMaxPiece) / 4096 * 4096;
}

constexpr char kDuplicating[] = "duplicating the communicator";

// MPI's world once more, for the transport alone. All processes make it together, once: MPI writes
// to it when the last of them has come, also where this one has given up by then.
struct Duplicate {
  Duplicate() { check(library().comm_idup(library().world, &comm, &request), kDuplicating); }

  MPI_Comm comm = nullptr;
  MPI_Request request = nullptr;
};

// Who has given up and tries again waits for the same.
MPI_Comm duplicate_world(int size, Clock::duration limit) {
  static Duplicate& only = *new Duplicate;  // outlives all static objects: MPI may end after them
  const auto deadline = Clock::now() + limit;
  Backoff backoff;
  for (int done = 0;; backoff.pause()) {
    check(library().test(&only.request, &done, MPI_STATUS_IGNORE), kDuplicating);
    if (done) return only.comm;
    if (Clock::now() >= deadline)
      fail(Code::kDeadlineExceeded, "not all ", size, " processes of MPI have made their ",
           "communicator within ", std::chrono::duration<double>(limit).count(), " s");
  }
}

}  // namespace

Transport::Transport(Clock::duration limit)
    : controls_(kHeadBytes + kInlineBytes), pool_([] {
        int size = 1;
        library().comm_size(library().world, &size);
        return piece_bytes(size);
      }()) {
  check(mpi_.comm_rank(mpi_.world, &rank_), "asking for the rank");
  check(mpi_.comm_size(mpi_.world, &size_), "asking for the number of ranks");
  comm_ = duplicate_world(size_, limit);
  check(mpi_.comm_set_errhandler(comm_, mpi_.errors_return), "setting the error handler");
  void* bound = nullptr;
  int found = 0;
  check(mpi_.comm_get_attr(comm_, MPI_TAG_UB, &bound, &found), "asking for the largest tag");
  max_tag_ = found ? *static_cast<int*>(bound) : 32767;
  slots_.resize(kSlots);
  for (Slot& slot : slots_) {
    slot.memory = controls_.take();
    post(slot);
  }
}

bool Transport::poll_until(Clock::time_point deadline, const std::function<bool()>& ready) {
  Backoff backoff;
  while (true) {
    {
      const Lock guard(mutex_);
      if (progress()) backoff.reset();
      if (ready()) return true;
    }
    if (Clock::now() >= deadline) return false;
    backoff.pause();
  }
}

void Transport::add(uint64_t group, Receiver* receiver) {
  groups_[group] = receiver;
  const auto early = early_.extract(group);
  if (early.empty()) return;
  for (auto& [process, control] : early.mapped()) receiver->receive(process, std::move(control));
}

void Transport::remove(uint64_t group) {
  groups_.erase(group);
  removed_.insert(group);
}

int Transport::new_tag() {
  if (last_tag_ == max_tag_)
    fail(Code::kResourceExhausted, "this process has made groups for all ", max_tag_,
         " tags of MPI");
  return ++last_tag_;
}

TransferPtr Transport::send(int process, const Control& control) {
  const Head head{control.kind,
                  control.rank,
                  control.group,
                  {control.words[0], control.words[1], control.words[2], control.words[3]},
                  control.payload.size()};
  COHORT_CHECK(control.payload.size() <= static_cast<size_t>(kInlineBytes));
  Piece piece = controls_.take();
  std::memcpy(piece.get(), &head, sizeof(head));
  std::copy(control.payload.begin(), control.payload.end(), piece.get() + kHeadBytes);
  return send(process, kControlTag, std::move(piece),
              kHeadBytes + static_cast<int64_t>(control.payload.size()));
}

TransferPtr Transport::send(int process, int tag, Piece piece, int64_t bytes) {
  check_open();
  const auto transfer =
      std::make_shared<Transfer>(Transfer{std::move(piece), bytes, process, true});
  MPI_Request request;
  check(mpi_.isend(transfer->piece.get(), static_cast<int>(bytes), mpi_.byte, process, tag, comm_,
                   &request),
        str("sending to process ", process));
  start(request, transfer);
  return transfer;
}

TransferPtr Transport::receive(int process, int tag, int64_t bytes) {
  check_open();
  const auto transfer = std::make_shared<Transfer>(Transfer{pool_.take(), bytes, process, false});
  MPI_Request request;
  check(mpi_.irecv(transfer->piece.get(), static_cast<int>(bytes), mpi_.byte, process, tag, comm_,
                   &request),
        str("receiving from process ", process));
  start(request, transfer);
  return transfer;
}

void Transport::cancel(const TransferPtr& transfer) {
  if (transfer->done || transfer->is_send || transfer->cancelled || closed_) return;
  transfer->cancelled = true;
  const auto at = std::find(transfers_.begin(), transfers_.end(), transfer);
  mpi_.cancel(&requests_[static_cast<size_t>(at - transfers_.begin())]);
}

bool Transport::leave(Clock::time_point deadline) {
  {
    const Lock guard(mutex_);
    for (int process = 0; process < size_; ++process)
      if (process != rank_) send(process, Control{.kind = Control::Kind::kLeave});
  }
  return poll_until(deadline, [&] { return left_ == size_ - 1; });
}

void Transport::close() {
  const Lock guard(mutex_);
  if (closed_) return;
  for (const TransferPtr& transfer : transfers_) cancel(transfer);
  const auto deadline = Clock::now() + kLastSends;
  for (Backoff backoff; !transfers_.empty() && Clock::now() < deadline; backoff.pause())
    complete_transfers();
  for (Slot& slot : slots_) mpi_.cancel(&slot.request);
  for (Slot& slot : slots_) {
    int done = 0;
    for (Backoff backoff; !done && Clock::now() < deadline; backoff.pause())
      if (mpi_.test(&slot.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
  }
  closed_ = true;
}

void Transport::check_open() const {
  if (closed_) fail(Code::kUnavailable, "MPI has been finalised");
}

bool Transport::progress() {
  check_open();
  const bool controls = receive_controls();
  const bool transfers = complete_transfers();
  for (const auto& [id, group] : groups_) group->advance();
  return controls || transfers;
}

bool Transport::receive_controls() {
  bool any = false;
  while (true) {
    Slot& slot = slots_[next_slot_];
    int done = 0, count = 0;
    MPI_Status status;
    check(mpi_.test(&slot.request, &done, &status), "receiving control messages");
    if (!done) return any;
    check(mpi_.get_count(&status, mpi_.byte, &count), "receiving control messages");
    dispatch(status.MPI_SOURCE, slot.memory.get(), count);
    post(slot);
    next_slot_ = (next_slot_ + 1) % slots_.size();
    any = true;
  }
}

bool Transport::complete_transfers() {
  if (requests_.empty()) return false;
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int code = mpi_.testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                 indices_.data(), statuses_.data());
  if (code != MPI_ERR_IN_STATUS) check(code, "moving data");
  if (count == MPI_UNDEFINED || count == 0) return false;
  for (int i = 0; i < count; ++i) {
    Transfer& transfer = *transfers_[static_cast<size_t>(indices_[static_cast<size_t>(i)])];
    const MPI_Status& status = statuses_[static_cast<size_t>(i)];
    transfer.done = true;
    if (code == MPI_ERR_IN_STATUS) transfer.error = status.MPI_ERROR;
  }
  size_t kept = 0;
  for (size_t i = 0; i < transfers_.size(); ++i) {
    if (transfers_[i]->done) continue;
    requests_[kept] = requests_[i];
    if (kept != i) transfers_[kept] = std::move(transfers_[i]);
    ++kept;
  }
  requests_.resize(kept);
  transfers_.resize(kept);
  return true;
}

void Transport::post(Slot& slot) {
  check(mpi_.irecv(slot.memory.get(), static_cast<int>(controls_.bytes()), mpi_.byte,
                   MPI_ANY_SOURCE, kControlTag, comm_, &slot.request),
        "receiving control messages");
}

void Transport::dispatch(int process, const char* bytes, int count) {
  Head head;
  if (count < kHeadBytes) return;
  std::memcpy(&head, bytes, sizeof(head));
  if (head.payload_bytes != static_cast<uint64_t>(count - kHeadBytes)) return;
  if (head.kind == Control::Kind::kLeave) {
    ++left_;
    return;
  }
  Control control{head.kind,
                  head.rank,
                  head.group,
                  {head.words[0], head.words[1], head.words[2], head.words[3]},
                  std::vector<char>(bytes + kHeadBytes, bytes + count)};
  if (const auto group = groups_.find(head.group); group != groups_.end())
    group->second->receive(process, std::move(control));
  else if (!removed_.contains(head.group))
    early_[head.group].emplace_back(process, std::move(control));
}

void Transport::start(MPI_Request request, const TransferPtr& transfer) {
  requests_.push_back(request);
  transfers_.push_back(transfer);
}

}  // namespace cohort::mpi
