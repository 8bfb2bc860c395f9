#include "server/recipient.hpp"

#include <algorithm>

namespace shared_tensor::server {

namespace {

/// For whoever has no local channel.
const tensor::Media& media_without_memory() {
    static const auto kShm = tensor::make_absent_medium(
        tensor::Way::shm, "the request names no session of a local channel, which carries the memory");
    static const auto kCudaIpc = tensor::make_absent_medium(
        tensor::Way::cuda_ipc, "the request names no session of a local channel, on which device memory is lent");
    static const tensor::Media kMedia(
        {kCudaIpc.get(), kShm.get(), &tensor::data_medium(), &tensor::base64_medium(), &tensor::body_medium()});
    return kMedia;
}

const tensor::Media& media_of(const std::shared_ptr<LocalClient>& client) {
    return client != nullptr ? client->media() : media_without_memory();
}

bool has_url(const std::vector<tensor::Way>& ways) {
    return std::find(ways.begin(), ways.end(), tensor::Way::url) != ways.end();
}

}  // namespace

std::string Recipient::busy() const {
    const auto& ways = meta.policy.require.empty() ? meta.policy.accept : meta.policy.require;
    const bool only_memory = client != nullptr && !ways.empty() &&
                             std::all_of(ways.begin(), ways.end(), [](auto way) { return way == tensor::Way::shm; });
    return only_memory ? client->busy() : std::string();
}

const tensor::Media& Recipient::media() const { return url != nullptr ? url->media() : media_of(client); }

std::optional<json_rpc::Error> Recipients::find(const Principal& principal, const CallMeta& defaults,
                                                const json_rpc::Json& meta, Recipient& recipient) const {
    auto read = read_meta(defaults, meta);
    if (auto* error = std::get_if<json_rpc::Error>(&read)) return std::move(*error);
    recipient.meta = std::move(std::get<CallMeta>(read));
    if (!enter_session(principal, recipient)) return json_rpc::unknown_or_expired("session", values_->epoch);
    if (recipient.client != nullptr) recipient.memory = recipient.client->watch_memory();
    offer_url(principal, recipient);
    tensor::ExportPolicy& policy = recipient.meta.policy;
    policy.most_data_elements = values_->most_data_elements;
    if (accepts(policy.codings, Coding::zstd)) policy.compression = values_->compression.for_tensors();
    return std::nullopt;
}

/// False for a session that is none, or not the caller's.
bool Recipients::enter_session(const Principal& principal, Recipient& recipient) const {
    const std::string& token = recipient.meta.session;
    if (token.empty()) return true;
    const auto session = sessions_->touch(token, principal.name);
    if (!session) return false;
    if (session->keeps_state) recipient.state_session = token;
    if (session->channel == 0) return true;
    recipient.client = local_->find(session->channel);
    return recipient.client != nullptr;  // else the channel was closed, and the session is about to end
}

/// To those who ask for it: others would not know that the tensor waits for them.
void Recipients::offer_url(const Principal& principal, Recipient& recipient) const {
    const tensor::ExportPolicy& policy = recipient.meta.policy;
    if (!has_url(policy.require.empty() ? policy.accept : policy.require)) return;
    service::Lessee lessee{principal.name, url_lessee(principal.name, recipient.meta.session), 0, false};
    recipient.url = std::make_unique<const UrlMedia>(media_of(recipient.client), values_->leases, std::move(lessee));
}

HandleGrants Recipients::grants(const Principal& principal, const Recipient& recipient) const {
    const auto pid = recipient.client != nullptr ? recipient.client->lessee().pid : 0;
    return {values_->objects, *sessions_, {principal.name, recipient.meta.session, pid}};
}

}  // namespace shared_tensor::server
