#include "client/session.hpp"

#include "util/log.hpp"

namespace shared_tensor::client {

Session::~Session() {
    CallOptions options;
    options.timeout = std::chrono::seconds(2);
    options.session = token;
    try {
        core->notify("session.close", detail::ArgumentsOf<>(), options);
    } catch (const std::exception& error) {
        log::debug("a session was left to the server's time limit: ", error.what());
    }
}

}  // namespace shared_tensor::client
