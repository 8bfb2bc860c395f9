#include "client/call/session.hpp"

#include <utility>

#include <shared_tensor/json.hpp>

#include "base/log/log.hpp"

namespace shared_tensor::client {

namespace {

std::string open_session(Core& core) {
    if (auto shared = core.open_stateful_session()) return std::move(*shared);
    CallOptions repeatable;
    repeatable.idempotent = true;
    detail::ResultOf<nlohmann::json> answer;
    core.call("session.open", detail::ArgumentsOf<>(), answer, repeatable);
    const auto opened = answer.take();
    const auto token = opened.is_object() ? opened.find("session") : opened.end();
    if (token == opened.end() || !token->is_string()) {
        throw ResultMismatch("session", "the token of a session", "an answer of session.open without it");
    }
    return token->get<std::string>();
}

}  // namespace

Session::Session(std::shared_ptr<Core> core) : core_(std::move(core)) { token(); }

const std::string& Session::token() const {
    return opened_.get([this] { return std::make_unique<Opened>(*core_); }).token;
}

Session::Opened::Opened(Core& owner) : core(owner), token(open_session(owner)) {}

Session::Opened::~Opened() {
    CallOptions options;
    options.timeout = std::chrono::seconds(2);
    options.session = token;
    try {
        core.notify("session.close", detail::ArgumentsOf<>(), options);
    } catch (const std::exception& error) {
        log::debug("a session could not be closed, so it ends after the server's time limit: ", error.what());
    }
}

}  // namespace shared_tensor::client
