#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "base/concurrency/in_parallel.hpp"
#include "base/log/log.hpp"
#include "client/transfers/known_bytes.hpp"
#include "client/transfers/swarm.hpp"
#include "client/transfers/transfer.hpp"
#include "net/message/fields.hpp"
#include "protocol/json_rpc/error.hpp"

namespace shared_tensor::client {

namespace {

/// Size of the first range. The size of the file is not known before, so the first range of a longer file is copied to
/// its place. One request is enough for a tensor of 1 MiB with a header of up to 64 KiB.
constexpr std::size_t kFirstRange = (std::size_t{1} << 20) + (std::size_t{64} << 10);
constexpr std::size_t kFirstOfSwarm = std::size_t{64} << 10;
constexpr std::uint64_t kLittle = 4;       // a piece of a swarm that lacks at most a quarter is not fetched from others
constexpr std::size_t kWorthwhile = 4096;  // after this many bytes the next try may follow at once
constexpr int kTriesInRanges = 2;          // of a file that changes; later tries use one request
constexpr int kMostTries = 8;
constexpr int kMostBusy = 5;  // answers of this kind to one question about a swarm
constexpr std::size_t kAll = std::numeric_limits<std::int64_t>::max();
constexpr const char* kOtherRange = "the server sent another range than the one that was asked for";

/// The file was replaced during the download.
struct Changed {};

class Download {
public:
    /// The first request asks for `first_bytes` bytes.
    Download(const Transfer& transfer, const std::string& path, const PullOptions& options, std::size_t first_bytes)
        : transfer_(transfer), path_(path), options_(options), first_bytes_(first_bytes), count_(options.progress) {}

    Downloaded run() {
        const bool in_parts = options_.previous || options_.swarm;
        if (!transfer_.compression() || in_parts || !fetch_compressed()) fetch_first();
        size_ = std::max<std::uint64_t>(size_, first_.body->size());
        count_.set(first_.body->size(), size_);
        if (size_ > first_.body->size()) fetch_rest();
        return {std::move(first_.body), std::move(first_.headers)};
    }

private:
    net::ClientRequest request() const {
        net::ClientRequest request;
        request.method = "GET";
        request.path = path_;
        request.max_response_bytes = static_cast<std::size_t>(Transfer::max_file_bytes());
        if (options_.verify) request.headers.add("Want-Content-Digest", std::string(net::kWantDigest));
        if (!etag_.empty() && !etag_.starts_with("W/")) request.headers.add("If-Match", etag_);
        return request;
    }

    net::ClientRequest request_of(const net::ByteRange& range) const {
        net::ClientRequest part = request();
        part.headers.add("Range",
                         "bytes=" + std::to_string(range.first) + "-" + std::to_string(range.first + range.count - 1));
        return part;
    }

    /// Requests the whole file in one answer, which the server compresses if that makes it smaller. Returns false if
    /// the connection broke or was too slow, or the bytes are damaged: a compressed answer cannot be resumed, ranges
    /// can.
    bool fetch_compressed() {
        bool is_whole = true;
        transfer_.until_it_holds(path_, [&](int) {
            net::ClientRequest whole = request();
            whole.headers.add("Accept-Encoding", "zstd");
            try {
                first_ = transfer_.send(std::move(whole));
            } catch (const net::TransportError& error) {
                if (!is_cut_off(error)) throw;
                is_whole = false;
                return;
            }
            if (first_.status != 200) throw_rejection(first_, path_);
            if (field_of(first_.headers, "Content-Encoding").empty())
                return check(first_.headers, first_.body->bytes());
            is_whole = decompress_first();
        });
        if (!is_whole) log::debug(path_, ": the compressed file was cut off or damaged; it is downloaded in ranges");
        return is_whole;
    }

    bool is_cut_off(const net::TransportError& error) const {
        using Kind = net::TransportError::Kind;
        return error.sent && (error.kind == Kind::broken || (error.kind == Kind::timeout && transfer_.has_time()));
    }

    bool decompress_first() {
        const std::span<const std::byte> bytes = first_.body->bytes();
        const auto size = size_before_zstd(bytes);
        if (!size) return false;
        auto plain = transfer_.take(*size);
        plain->resize(static_cast<std::size_t>(*size));
        try {
            decompress_zstd(bytes, {plain->data(), plain->size()});
        } catch (const BadCompression& error) {
            log::debug(path_, ": ", error.what());
            return false;
        }
        transfer_.count({bytes.size(), plain->size(), 0, 0});
        first_.body = std::move(plain);
        return true;
    }

    void fetch_first() {
        std::size_t wanted = first_bytes_;
        transfer_.until_it_holds(path_, [&](int) {
            try {
                first_ = transfer_.send(request_of({0, wanted}));
            } catch (const net::TransportError& error) {
                // No byte of the answer was kept. A smaller range may succeed.
                if (is_cut_off(error))
                    wanted = wanted > kFirstRange ? kFirstRange : std::max<std::size_t>(wanted / 8, 1);
                throw;
            }
            const auto range = net::parse_content_range(field_of(first_.headers, "Content-Range"));
            if (first_.status == 416 && range && range->size == 0U) {  // an empty file has no ranges
                first_.body->resize(0);
            } else if (first_.status == 200) {
                check(first_.headers, first_.body->bytes());
            } else if (first_.status == 206) {
                if (!range || !range->size || range->part.first != 0 || range->part.count != first_.body->size())
                    throw_odd(path_, kOtherRange);
                check(first_.headers, first_.body->bytes());
                size_ = *range->size;
            } else {
                throw_rejection(first_, path_);
            }
        });
        etag_ = field_of(first_.headers, "ETag");
    }

    void fetch_rest() {
        const std::size_t there = first_.body->size();
        std::shared_ptr<PooledBuffer> whole = memory();
        whole->resize(static_cast<std::size_t>(size_));
        std::memcpy(whole->data(), first_.body->data(), there);
        first_.body = std::move(whole);
        missing_ = options_.previous ? take_known(there) : all_behind(there);
        if (options_.swarm && fetch_by_swarm()) return;
        std::vector<net::ByteRange> ranges;
        for (const net::ByteRange& part : missing_) {
            for (std::uint64_t done = 0; done < part.count; done += options_.range_bytes)
                ranges.push_back({part.first + done, std::min<std::uint64_t>(options_.range_bytes, part.count - done)});
        }
        in_parallel(std::min(options_.connections, ranges.size()), ranges.size(), [&](std::uint64_t i) {
            if (!fetch_delta(ranges[i])) fetch(ranges[i]);
        });
    }

    /// The parts of a range that neither the first answer nor the previous version has.
    std::vector<net::ByteRange> missing_in(const net::ByteRange& range) const {
        const std::uint64_t end = range.first + range.count;
        auto part = std::partition_point(missing_.begin(), missing_.end(), [&](const net::ByteRange& one) {
            return one.first + one.count <= range.first;
        });
        std::vector<net::ByteRange> parts;
        for (; part != missing_.end() && part->first < end; ++part) {
            const std::uint64_t first = std::max(part->first, range.first);
            parts.push_back({first, std::min(part->first + part->count, end) - first});
        }
        return parts;
    }

    static std::uint64_t bytes_in(const std::vector<net::ByteRange>& ranges) {
        std::uint64_t bytes = 0;
        for (const net::ByteRange& range : ranges)
            bytes += range.count;
        return bytes;
    }

    /// For the whole file.
    std::shared_ptr<PooledBuffer> memory() const {
        if (!options_.memory) return transfer_.take(size_);
        const TensorRef given = options_.memory(size_);
        if (given.bytes() < size_)
            throw std::invalid_argument("PullOptions::memory returned less memory than asked for");
        return std::make_shared<PooledBuffer>(given.owner(), given.mutable_data(), static_cast<std::size_t>(size_));
    }

    /// Sends a report of a swarm once. Throws NoSwarm if the server has no place for another receiver or knows nothing
    /// of swarms, which it says to the first report, and ServerBusy.
    std::string ask_once(net::ClientRequest question, const std::string& report) {
        question.method = "POST";
        question.text = report;
        const net::ClientResponse response = transfer_.send(std::move(question));
        if (!is_in_swarm_ && (response.status == 405 || response.status == 503)) throw NoSwarm();
        check_status(response);
        is_in_swarm_ = true;
        return std::string(response.text());
    }

    /// As Swarm::Source::ask says. Throws NoSwarm also for a server that stays busy.
    std::string ask_about_swarm(const std::string& report, std::optional<SteadyTime> once_until) {
        std::string answer;
        int busy = 0;
        try {
            if (once_until) {
                net::ClientRequest question = request();
                question.deadline = std::min(*once_until, transfer_.deadline());
                question.stop = transfer_.stop();
                return ask_once(std::move(question), report);
            }
            transfer_.until_it_holds(path_, [&](int) {
                try {
                    answer = ask_once(request(), report);
                } catch (const ServerBusy&) {
                    if (++busy == kMostBusy) throw NoSwarm();
                    throw;
                }
            });
        } catch (const ServerBusy&) {
            throw NoSwarm();
        }
        return answer;
    }

    /// False if the server has no place for another receiver: then missing_ is what this one still lacks.
    bool fetch_by_swarm() {
        const auto ask = [&](const std::string& report, std::optional<SteadyTime> once_until) {
            return ask_about_swarm(report, once_until);
        };
        const auto complete = [&](const net::ByteRange& range) {
            const auto missing = missing_in(range);
            if (bytes_in(missing) > range.count / kLittle) return false;
            for (const net::ByteRange& part : missing) {
                if (!fetch_delta(part)) fetch(part);
            }
            return true;
        };
        const auto arrived = [&](const net::ByteRange& range) { count_.add(bytes_in(missing_in(range))); };
        const auto fetch_whole = [&](const net::ByteRange& range) {
            fetch_uncounted(range);
            arrived(range);
        };
        const Swarm::Source source{ask, complete, fetch_whole, arrived, transfer_.deadline(), transfer_.stop()};
        Swarm swarm(options_, transfer_.tls(), source, first_.body);
        try {
            swarm.run();
            return true;
        } catch (const NoSwarm&) {
            log::info(path_, ": the server has no place in a swarm for this receiver; the rest is fetched from it");
            missing_ = swarm.missing([this](const net::ByteRange& range) { return missing_in(range); });
            count_.set(size_ - bytes_in(missing_), size_);
            return false;
        }
    }

    std::vector<net::ByteRange> all_behind(std::uint64_t there) const { return {{there, size_ - there}}; }

    /// Takes from the previous version what the file has too. Returns what is still missing behind the first `there`
    /// bytes.
    std::vector<net::ByteRange> take_known(std::uint64_t there) {
        const std::span<std::byte> file(first_.body->data(), first_.body->size());
        try {
            const auto prefix = file.first<8>();
            const std::uint64_t head = prefix.size() + tensor::safetensors_json_size(prefix, size_);
            if (head > there) {
                fetch({there, head - there});
                there = head;
            }
            const std::string json(reinterpret_cast<const char*>(file.data()) + prefix.size(), head - prefix.size());
            const auto header = tensor::parse_safetensors_header(json, size_ - head);
            const auto digests = fetch_digests();
            if (digests == nullptr) return all_behind(there);
            known_.emplace(tensors_of(options_.previous->content()), header);
            auto missing = known_->copy(digests->bytes(), file, there, options_.connections);
            base_is_kept_ = known_->base().has_value();
            count_.add(size_ - there - bytes_in(missing));
            return missing;
        } catch (const tensor::SafetensorsError& error) {
            log::debug(path_, ": nothing of the previous version is used: ", error.what());
            return all_behind(there);
        }
    }

    /// The digests of the blocks of all members. Null if the server does not have them.
    std::shared_ptr<PooledBuffer> fetch_digests() {
        std::shared_ptr<PooledBuffer> digests;
        transfer_.until_it_holds(path_, [&](int) {
            net::ClientRequest wanted = request();
            wanted.path.append(path_.find('?') == std::string::npos ? "?" : "&")
                .append("digests=")
                .append(std::to_string(kDeltaBlock));
            net::ClientResponse response = transfer_.send(std::move(wanted));
            if (response.status == 400) return;
            check_status(response);
            digests = std::move(response.body);
        });
        return digests;
    }

    static tensor::TensorMap tensors_of(const NamedTensor::Content& content) {
        return content.tensor != nullptr ? tensor::TensorMap{{content.name, content.tensor}} : content.members;
    }

    /// Downloads a range as its difference from the previous version, or as it is if that is not larger. Returns false
    /// if the server does not keep the previous version.
    bool fetch_delta(const net::ByteRange& range) {
        if (!base_is_kept_) return false;
        const std::span<std::byte> memory(first_.body->data() + range.first, static_cast<std::size_t>(range.count));
        bool is_there = false;
        transfer_.until_it_holds(path_, [&](int) {
            net::ClientRequest wanted = request_of(range);
            wanted.headers.add("A-IM", "range, xor-zstd");
            wanted.headers.add("Shared-Tensor-Base", net::digest_field(*known_->base()));
            const net::ClientResponse response = transfer_.send(std::move(wanted));
            check_status(response);
            check_range(response.headers, range);
            const std::span<const std::byte> bytes = response.body->bytes();
            if (response.status == 226) {
                is_there = undo_delta(bytes, range, memory);
                if (is_there) transfer_.count({bytes.size(), memory.size(), 0, 0});
            } else {
                if (response.status != 206 || bytes.size() != memory.size()) throw_odd(path_, kOtherRange);
                check(response.headers, bytes);
                std::memcpy(memory.data(), bytes.data(), bytes.size());
                is_there = true;
            }
            if (!is_there || !response.headers.find("Delta-Base")) base_is_kept_ = false;
        });
        if (is_there) count_.add(range.count);
        return is_there;
    }

    /// False if the result has another digest than the range: what this process has is no longer the previous version.
    bool undo_delta(std::span<const std::byte> delta, const net::ByteRange& range, std::span<std::byte> memory) const {
        constexpr std::size_t kHead = std::tuple_size_v<Digest::Value>;
        if (delta.size() < kHead || size_before_zstd(delta.subspan(kHead)) != memory.size()) return false;
        try {
            decompress_zstd(delta.subspan(kHead), memory);
        } catch (const BadCompression& error) {
            log::debug(path_, ": ", error.what());
            return false;
        }
        known_->undo_xor(range, memory);
        const Digest::Value digest = Digest::of(memory);
        return std::equal(digest.begin(), digest.end(), delta.begin());
    }

    void fetch(const net::ByteRange& range) {
        fetch_uncounted(range);
        count_.add(range.count);
    }

    /// Downloads a range. If the connection breaks, further requests complete the range. The digest comes with the
    /// first answer, which was to contain the whole range.
    void fetch_uncounted(const net::ByteRange& range) {
        const std::span<std::byte> memory(first_.body->data() + range.first, static_cast<std::size_t>(range.count));
        std::size_t done = 0;
        net::Headers head;
        transfer_.until_it_holds(path_, [&](int& number) {
            net::BodyPlace place{memory.subspan(done)};
            const net::ByteRange rest{range.first + done, place.memory.size()};
            net::ClientRequest request = request_of(rest);
            request.place = &place;
            const auto keep = [&] {
                if (place.status != 206) throw_odd(path_, kOtherRange);
                check_range(place.headers, rest);
                if (done == 0) head = place.headers;
                done += place.filled;
            };
            try {
                check_status(transfer_.send(std::move(request)));
            } catch (const net::TransportError&) {
                if (place.filled == 0) throw;
                keep();
                if (place.filled >= std::min(kWorthwhile, place.memory.size())) number = 0;
                throw;
            }
            keep();
            done = 0;  // if the bytes are damaged, the next try starts again
            check(head, memory);
        });
    }

    void check_status(const net::ClientResponse& response) const {
        if (response.status == 404 || response.status == 412) throw Changed();
        if (response.status / 100 != 2) throw_rejection(response, path_);
    }

    void check_range(const net::Headers& headers, const net::ByteRange& wanted) const {
        const auto range = net::parse_content_range(field_of(headers, "Content-Range"));
        const bool is_it = range && range->part.first == wanted.first && range->part.count == wanted.count;
        if (is_it && field_of(headers, "ETag") != etag_) throw Changed();  // the new file may have another size
        if (!is_it || range->size != size_) throw_odd(path_, kOtherRange);
    }

    void check(const net::Headers& head, std::span<const std::byte> bytes) const {
        if (!options_.verify) return;
        const auto digest = net::parse_digest_field(head.find("Content-Digest"));
        if (!digest.is_there) {
            log::debug(path_, ": the answer has no digest, its bytes are not verified");
        } else if (!digest.value || *digest.value != Digest::of(bytes)) {
            throw_odd(path_, "the bytes were damaged on the way: they do not have the digest that the server gave");
        }
    }

    const Transfer& transfer_;
    const std::string& path_;
    const PullOptions& options_;
    const std::size_t first_bytes_;
    TransferCount count_;
    std::optional<KnownBytes> known_;        // of the previous version
    std::vector<net::ByteRange> missing_;    // after the first answer and the previous version, in the file's order
    std::atomic<bool> base_is_kept_{false};  // by the server, as far as is known
    std::atomic<bool> is_in_swarm_{false};   // the server has answered a report
    net::ClientResponse first_;              // its body becomes the body of the whole file
    std::string etag_;
    std::uint64_t size_ = 0;
};

}  // namespace

Downloaded download(Core& core, const std::string& path, const PullOptions& options, const CallOptions& call) {
    if (options.connections == 0 || options.range_bytes == 0)
        throw std::invalid_argument("PullOptions: connections and range_bytes must be at least 1");
    const Transfer transfer(core, path, call);
    if (options.swarm && core.url().starts_with("https:") && transfer.tls().certificate.empty())
        throw std::invalid_argument(
            "PullOptions: a swarm of a server with TLS needs a certificate and key of this process "
            "(ClientOptions::tls), since it serves other receivers");
    const std::size_t first = options.swarm ? kFirstOfSwarm : std::min(kFirstRange, options.range_bytes);
    return core.counted(transfer.start(), [&] {
        for (int tries = 0; tries < kMostTries; ++tries) {
            try {
                // One answer contains one version, even if new versions are published meanwhile.
                const bool in_ranges = tries < kTriesInRanges;
                return Download(transfer, path, options, in_ranges ? first : kAll).run();
            } catch (const Changed&) {
                log::debug(path, " changed during the download, which starts again");
            }
        }
        throw TensorExpired(static_cast<int>(json_rpc::ErrorCode::unknown_or_expired), "Unknown or expired", {},
                            path + ": a new version took its place each of the " + std::to_string(kMostTries) +
                                " times that it was fetched; pull it again, or publish it less often");
    });
}

}  // namespace shared_tensor::client
