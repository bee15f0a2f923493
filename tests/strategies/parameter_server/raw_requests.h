#pragma once

#include <chrono>
#include <string>

#include <grpcpp/grpcpp.h>

#include "proto/parameter_server.pb.h"
#include "strategies/parameter_server/link.h"
#include "strategies/parameter_server/wire.h"
#include "tests/strategies/parameter_server/testing.h"

// Requests made by hand, for tests of callers that do not keep to the rules.
namespace cohort::testing {

inline std::chrono::steady_clock::time_point soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(20);
}

inline parameter_server::proto::Request request(const std::string& task = "worker:7") {
  parameter_server::proto::Request request;
  request.mutable_caller()->set_protocol(parameter_server::kProtocolVersion);
  request.mutable_caller()->set_job_id("job");
  request.mutable_caller()->set_task(task);
  request.mutable_caller()->set_incarnation(1);
  return request;
}

// A push to shard "w".
inline std::string push_header(uint64_t payload) {
  parameter_server::proto::Request pushing = request();
  auto& push = *pushing.mutable_update()->add_pushes();
  push.set_shard("w");
  push.set_sequence(1);
  push.set_rows(-1);
  push.set_payload_bytes(payload);
  return pushing.SerializeAsString();
}

// How a server says, by gRPC, that a caller on `host` may go on without.
inline parameter_server::proto::Upgraded upgrade_of(const Address& server, const std::string& host,
                                                    const std::string& task = "worker:7") {
  using parameter_server::Link;
  Link link(grpc::CreateChannel(server.text(), grpc::InsecureChannelCredentials()),
            Link::Unconnected::kWait);
  EXPECT_TRUE(link.connect(soon()));
  parameter_server::proto::Request asking = request(task);
  asking.mutable_upgrade()->set_host(host);
  link.send({.header = asking.SerializeAsString(), .payload = {}}, soon());
  parameter_server::proto::Reply reply;
  link.receive({.begin = [&](const std::string& text, size_t) { reply.ParseFromString(text); },
                .take = [](const char*, size_t) {}},
               soon());
  return reply.upgraded();
}

}  // namespace cohort::testing
