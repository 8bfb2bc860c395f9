#include "server/task_json.hpp"

#include "service/outcome.hpp"
#include "util/time_text.hpp"

namespace shared_tensor::server {

using json_rpc::Json;

namespace {

constexpr int kPollIntervalMs = 500;

Json error_json(const json_rpc::Error& error) {
    Json json{{"code", error.code}, {"message", error.message}};
    if (!error.data.is_null()) json["data"] = error.data;
    return json;
}

}  // namespace

Json to_json(const tasks::TaskInfo& info) {
    Json json{{"id", info.id},
              {"method", info.method},
              {"state", tasks::to_string(info.state)},
              {"created_at", iso8601(info.created_at)},
              {"updated_at", iso8601(info.updated_at)},
              {"ttl_ms", info.ttl.count()},
              {"poll_interval_ms", kPollIntervalMs}};
    if (info.fraction) {
        json["progress"] = {{"fraction", *info.fraction}};
        if (!info.message.empty()) json["progress"]["message"] = info.message;
    }
    if (const auto* outcome = static_cast<const service::CallOutcome*>(info.outcome.get())) {
        if (outcome->failed()) json["error"] = error_json(*outcome->error());
    }
    return json;
}

}  // namespace shared_tensor::server
