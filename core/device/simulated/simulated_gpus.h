#pragma once

#include <functional>

#include "core/device/device.h"

// GPUs that exist on the host alone, to test what runs on GPUs where there is none. Nothing is done
// before a stream is synchronised, and device memory can be touched only by what streams do: other
// accesses are segmentation faults.
namespace cohort::simulated {

// Puts gpu:0 .. gpu:count-1 in the place of the real ones, for the life of the process. Each may
// hold `memory_limit` bytes (0: no limit).
void use_simulated_gpus(int count, size_t memory_limit = 0);

// What allocate_staging has given out so far.
size_t staging_bytes();

// Whether streams refuse from now on what they have recorded, as a GPU's do where something was
// called that a recording does not take.
void refuse_recordings(bool refuse);

// Waits for all streams, as libraries may when they are first used: what streams record meanwhile,
// whichever thread has begun it, they refuse.
void wait_for_streams();

// Hands over what a kernel does. `stream` must be a simulated GPU's.
void submit(Stream& stream, std::function<void()> work);

}  // namespace cohort::simulated
