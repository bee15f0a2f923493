// What the sanitizers must know in every program, its child processes included. Without a sanitizer
// nothing calls these functions.

extern "C" {

// NOLINTNEXTLINE(bugprone-reserved-identifier): the name that ThreadSanitizer looks for
const char* __tsan_default_suppressions();

// Debian's libraries are not built for ThreadSanitizer, which sees their memory traffic through the
// C library but not the atomics that order it. Our own code stays under watch wherever it is called
// from, but for gRPC's callbacks: one follows another on threads whose order cannot be seen. Nor is
// it seen that gRPC closes sockets, its own and those that a listener or a guard hands to it, so
// that their numbers come again. Open MPI's transports take their locks in more than one order, and
// its components bring zlib and take it away again, which "called_from_lib" does not allow.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
const char* __tsan_default_suppressions() {
  return "race:grpc::internal::\n"
         "race:libgrpc.so\n"
         "race:libgrpc++.so\n"
         "race:cohort::coordination::Listener::accept_all\n"
         "race:cohort::net::Http2Guard::guard\n"
         "race:cohort::net::InternetAddress::try_socket\n"
         "race:absl::debian3::cord_internal::\n"
         "race:libz.so\n"
         "deadlock:openmpi3\n"
         "called_from_lib:libabsl_cord.so\n"
         "called_from_lib:libabsl_cord_internal.so\n"
         "called_from_lib:libabsl_graphcycles_internal.so\n"
         "called_from_lib:libabsl_random_internal_pool_urbg.so\n"
         "called_from_lib:libabsl_status.so\n"
         "called_from_lib:libabsl_strings.so\n"
         "called_from_lib:libabsl_synchronization.so\n"
         "called_from_lib:libabsl_time_zone.so\n"
         "called_from_lib:libcrypto.so\n"
         "called_from_lib:libdnnl.so\n"
         "called_from_lib:libgomp.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgrpc.so\n"
         "called_from_lib:libprotobuf.so\n"
         "called_from_lib:libssl.so\n";
}

}  // extern "C"
