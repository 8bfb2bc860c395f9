#include "client/tasks/submission.hpp"

#include <array>
#include <utility>

#include <shared_tensor/json.hpp>

#include "base/bytes/ids.hpp"
#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor {

namespace {

constexpr std::array kStates{"pending", "running", "completed", "failed", "cancelled"};

TaskState read_state(const ValueReader& reader) {
    reader.require(Kind::string, "state of a task");
    for (std::size_t i = 0; i < kStates.size(); ++i) {
        if (reader.string() == kStates[i]) return static_cast<TaskState>(i);
    }
    reader.fail("state of a task");
}

void read_progress(const ValueReader& reader, TaskStatus& status) {
    if (reader.kind() != Kind::object) return;
    if (reader.has("fraction")) status.fraction = Codec<std::optional<double>>::read(reader.member("fraction"));
    if (reader.has("message")) {
        status.message = Codec<std::optional<std::string>>::read(reader.member("message")).value_or(std::string());
    }
}

std::string text_of(const ValueReader& reader) {
    std::string text;
    json_rpc::print_json(Codec<nlohmann::json>::read(reader), text);
    return text;
}

}  // namespace

const char* to_string(TaskState state) { return kStates.at(static_cast<std::size_t>(state)); }

namespace client {

void SubmitArguments::write(ValueWriter params) const {
    params.object();
    params.member("method").string(method_);
    if (!inner_->empty()) inner_->write(params.member("params"));
    if (options_->task_ttl) params.member("ttl_ms").integer(options_->task_ttl->count());
    if (options_->task_deadline) params.member("deadline_ms").integer(options_->task_deadline->count());
    if (!options_->idempotency_key.empty()) params.member("idempotency_key").string(options_->idempotency_key);
}

CallOptions with_key(CallOptions options) {
    if (options.idempotency_key.empty()) options.idempotency_key = random_hex(16);
    return options;
}

CallOptions of_submission(CallOptions options) {
    options.idempotent = !options.idempotency_key.empty();
    options.idempotency_key.clear();
    return options;
}

TaskStatus task_status(const ValueReader& reader) {
    reader.require(Kind::object, "task");
    TaskStatus status;
    status.id = Codec<std::string>::read(reader.member("id"));
    status.state = read_state(reader.member("state"));
    reader.each_member([&](std::string_view key, const ValueReader& member) {
        if (key == "method") status.method = Codec<std::string>::read(member);
        if (key == "created_at") status.created_at = Codec<std::string>::read(member);
        if (key == "updated_at") status.updated_at = Codec<std::string>::read(member);
        if (key == "poll_interval_ms")
            status.poll_interval = std::chrono::milliseconds(Codec<std::int64_t>::read(member));
        if (key == "progress") read_progress(member, status);
        if (key == "error" && member.kind() != Kind::null) status.error = text_of(member);
    });
    return status;
}

bool is_news(const TaskStatus& before, const TaskStatus& now) {
    return before.state != now.state || before.fraction != now.fraction || before.message != now.message;
}

}  // namespace client
}  // namespace shared_tensor
