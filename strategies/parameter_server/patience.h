#pragma once

#include <chrono>

namespace cohort::parameter_server {

// How long the other side of a connection may give no sign of life before it counts as gone, unless
// a client was told otherwise. Whoever lives gives one every FrameSocket::kBeat, or when gRPC asks
// for it: twelve beats in a row are not missed by chance, even where processes wait for a core, and
// nobody waits long for a host that has lost its power.
inline constexpr std::chrono::milliseconds kUsualPatience(3000);

}  // namespace cohort::parameter_server
