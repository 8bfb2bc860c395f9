#include "client/transfers/transfer.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/bytes/field_list.hpp"
#include "base/bytes/ids.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/concurrency/in_parallel.hpp"
#include "base/log/log.hpp"
#include "net/message/fields.hpp"
#include "net/message/text.hpp"

namespace shared_tensor::client {

namespace {

using net::ByteRange;

constexpr int kMostRounds = 4, kMostBefore = 8;
constexpr std::chrono::milliseconds kFarewell{2'000}, kShortFarewell{100};

/// Parses the missing ranges of an upload: "0-99, 200-299".
std::vector<ByteRange> parse_gaps(std::string_view text, std::uint64_t size) {
    std::vector<ByteRange> gaps;
    for_each_in(text, [&](std::string_view one) {
        const auto gap = net::parse_content_range("bytes " + std::string(one) + "/" + std::to_string(size));
        if (gap) gaps.push_back(gap->part);
    });
    return gaps;
}

class Upload {
public:
    Upload(const Transfer& transfer, const UploadFile& file, const PushOptions& options)
        : transfer_(transfer),
          file_(file),
          options_(options),
          resumes_(options.resume && !options.put.if_version && !options.put.base && !options.put.version),
          count_(options.progress),
          path_(path_of(random_hex(16))) {}

    /// Returns the version.
    std::uint64_t run() {
        std::vector<ByteRange> missing{{0, file_.size}};
        try {
            if (resumes_) missing = find_begun();
            for (int round = 0; round < kMostRounds; ++round) {
                send(missing);
                if (const auto done = version()) return *done;
                missing = ask().value_or(std::vector<ByteRange>{{0, file_.size}});
                if (const auto done = version()) return *done;
            }
            throw_odd(path_, "the server loses parts that it has taken");
        } catch (const RpcError& error) {
            if (!resumes_ || !may_go_well_later(error)) drop();
            throw;
        } catch (...) {
            drop();
            throw;
        }
    }

private:
    /// Known once the server has all parts.
    std::optional<std::uint64_t> version() const {
        return version_.with([](const auto& known) { return known; });
    }

    static bool may_go_well_later(const RpcError& error) {
        return dynamic_cast<const TransportFailure*>(&error) != nullptr || error.is(ErrorCode::deadline_exceeded) ||
               error.is(ErrorCode::busy) || error.is(ErrorCode::shutting_down) || error.is(ErrorCode::cancelled);
    }

    std::string path_of(const std::string& id) const {
        return file_.path + (file_.path.find('?') == std::string::npos ? "?upload=" : "&upload=") + id;
    }

    /// Finds an unfinished upload of the same bytes and returns its missing ranges. A finished upload is not used:
    /// newer versions may have replaced its version by now.
    std::vector<ByteRange> find_begun() {
        std::string form = digest_of(file_.parts);
        for (const auto& [name, value] : file_.headers)
            form.append("\n").append(name).append(": ").append(value);
        const std::string own = path_, id = "r-" + hex(Digest::of(std::as_bytes(std::span(form))));
        std::optional<std::string> unused;
        for (int number = 0; number < kMostBefore; ++number) {
            path_ = path_of(id + "-" + std::to_string(number));
            const auto begun = ask();
            if (version_.with([](auto& known) { return std::exchange(known, std::nullopt).has_value(); })) continue;
            if (begun) return *begun;
            if (unused) break;
            unused = path_;  // the server may have forgotten an earlier upload, so the next number is tried too
        }
        path_ = unused.value_or(own);
        return {{0, file_.size}};
    }

    void send(const std::vector<ByteRange>& wanted) {
        std::vector<ByteRange> parts;
        std::uint64_t missing = 0;
        for (const ByteRange& range : wanted) {
            missing += range.count;
            std::uint64_t at = 0;
            do {
                parts.push_back({range.first + at, std::min<std::uint64_t>(options_.part_bytes, range.count - at)});
                at += options_.part_bytes;
            } while (at < range.count);
        }
        count_.set(file_.size - missing, file_.size);
        in_parallel(std::clamp<std::size_t>(parts.size(), 1, options_.connections), parts.size(), [&](std::uint64_t i) {
            transfer_.until_it_holds(path_, [&](int) { send(parts[i]); });
            count_.add(parts[i].count);
        });
    }

    void send(const ByteRange& part) {
        net::ClientRequest request;
        request.method = "PUT";
        request.path = path_;
        request.headers = file_.headers;
        request.content_type = "application/octet-stream";
        request.parts = net::cut(file_.parts, part);
        const std::uint64_t compressed = compress(request);
        if (part.count < file_.size) request.headers.add("Content-Range", net::content_range(part, file_.size));
        // A resumed upload relies on the parts that were sent before.
        if (options_.verify || resumes_) request.headers.add("Content-Digest", digest_of(request.parts));
        const net::ClientResponse response = transfer_.send(std::move(request));
        if (compressed > 0 && response.status == 415) {  // the server does not support compression
            compresses_ = false;
            return send(part);
        }
        if (compressed > 0) transfer_.count({0, 0, compressed, part.count});
        read(response);
    }

    /// Compresses the parts of `request`. Returns their new size; 0 if they stay uncompressed.
    std::uint64_t compress(net::ClientRequest& request) const {
        if (!compresses_ || !transfer_.compression()) return 0;
        std::vector<std::byte> gathered;
        std::span<const std::byte> bytes;
        if (request.parts.size() == 1) {
            bytes = request.parts.front().bytes;
        } else {
            for (const net::BodyPart& part : request.parts)
                gathered.insert(gathered.end(), part.bytes.begin(), part.bytes.end());
            bytes = gathered;
        }
        const auto smaller = compress_if_smaller(bytes, transfer_.compression());
        if (!smaller) return 0;
        request.headers.add("Content-Encoding", std::string(name_of(transfer_.compression().coding)));
        request.parts = {{smaller->bytes(), smaller->owner}};
        return smaller->size;
    }

    static std::string digest_of(const std::vector<net::BodyPart>& parts) {
        Digest digest;
        for (const net::BodyPart& part : parts)
            digest.update(part.bytes);
        return net::digest_field(digest.value());
    }

    void read(const net::ClientResponse& response) {
        if (response.status == 202) return;
        if (response.status != 200 && response.status != 201) reject(response);
        const auto json = nlohmann::json::parse(response.text(), nullptr, false);
        if (!json.is_object() || !json.contains("version") || !json["version"].is_number_unsigned())
            throw_odd(path_, "the server's answer has no version");
        version_.with([&](auto& known) { known = json["version"].get<std::uint64_t>(); });
    }

    /// Throws for a rejected part. Damage on the way becomes a ProtocolFailure, after which the part is sent again.
    [[noreturn]] void reject(const net::ClientResponse& response) {
        try {
            throw_rejection(response, path_);
        } catch (const InvalidParams& error) {
            if (details_of(error).parameter == "Content-Digest")
                throw_odd(path_, "a part was damaged on the way each time");
            throw;
        }
    }

    /// Asks for the ranges that the server does not have. Returns nothing if the server does not know the upload, or
    /// rejects the HEAD request (only the answer to a PUT contains the reason).
    std::optional<std::vector<ByteRange>> ask() {
        std::optional<std::vector<ByteRange>> missing;
        transfer_.until_it_holds(path_, [&](int) {
            const net::ClientResponse response = transfer_.send(request("HEAD"));
            missing.reset();
            if (response.status == 503)
                throw ServerBusy(static_cast<int>(ErrorCode::busy), "Busy", {},
                                 path_ + ": the server is busy with this upload");
            if (response.status == 502 || response.status == 504)
                throw_foreign(path_ + ": the server", response.status, "without a reason", true);
            if (response.status != 200) return;
            if (const auto published = net::parse_decimal(field_of(response.headers, "Shared-Tensor-Version"))) {
                version_.with([&](auto& known) { known = *published; });
                missing.emplace();
            } else {
                missing = parse_gaps(field_of(response.headers, "Shared-Tensor-Missing"), file_.size);
            }
        });
        return missing;
    }

    void drop() noexcept {
        try {
            net::ClientRequest farewell = request("DELETE");
            const SteadyTime now = transfer_.clock().now();
            farewell.deadline = std::min(now + kFarewell, std::max(transfer_.deadline(), now + kShortFarewell));
            transfer_.send(std::move(farewell));
        } catch (const std::exception& error) {
            log::debug("the server could not be told to drop a failed upload, which ends after its time limit: ",
                       error.what());
        }
    }

    net::ClientRequest request(const char* method) const {
        net::ClientRequest request;
        request.method = method;
        request.path = path_;
        return request;
    }

    const Transfer& transfer_;
    const UploadFile& file_;
    const PushOptions& options_;
    const bool resumes_;
    TransferCount count_;
    std::string path_;
    Guarded<std::optional<std::uint64_t>> version_;
    std::atomic<bool> compresses_{true};
};

}  // namespace

std::uint64_t upload(Core& core, const UploadFile& file, const PushOptions& options, const CallOptions& call) {
    if (options.connections == 0 || options.part_bytes == 0)
        throw std::invalid_argument("PushOptions: connections and part_bytes must be at least 1");
    const Transfer transfer(core, file.path, call);
    try {
        return core.counted(transfer.start(), [&] { return Upload(transfer, file, options).run(); });
    } catch (const Cancelled&) {
        throw_cancelled(file.path, true);  // an earlier request of the upload may have arrived
    }
}

}  // namespace shared_tensor::client
