// What PyTorch asks of a device before any kernel runs, answered for "cuda" by a CPU build: a device guard and hooks that
// know a current device and a current stream for each thread, and do no work.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

static c10::DeviceIndex devices = 1;
static thread_local c10::DeviceIndex current = 0;
static thread_local c10::StreamId streams[8] = {};

static c10::DeviceIndex exchange(c10::DeviceIndex index) {
  auto old = current;
  if (index >= 0) current = index;
  return old;
}
static c10::Stream stream_of(c10::DeviceIndex index) {
  if (index < 0) index = current;
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::CUDA, index), streams[index]);
}

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device exchangeDevice(c10::Device d) const override { return {c10::DeviceType::CUDA, exchange(d.index())}; }
  c10::Device getDevice() const override { return {c10::DeviceType::CUDA, current}; }
  void setDevice(c10::Device d) const override { exchange(d.index()); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { exchange(d.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return devices; }
  c10::Stream getStream(c10::Device d) const noexcept override { return stream_of(d.index()); }
  c10::Stream getDefaultStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream exchangeStream(c10::Stream s) const noexcept override {
    auto old = stream_of(s.device_index());
    streams[s.device_index()] = s.id();
    return old;
  }
  // autograd lets streams wait for each other with events: here everything is done when it has been called
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override { *event = (void*)1; }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void synchronizeStream(const c10::Stream&) const override {}
};

struct Hooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return devices; }
  c10::DeviceIndex deviceCount() const override { return devices; }
  c10::DeviceIndex current_device() const override { return current; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex index) const override { exchange(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override { return exchange(index); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchange(index); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  void deviceSynchronize(c10::DeviceIndex) const override {}
};

extern "C" {
int pretended_device(int index) { return exchange(index); }
long pretended_stream(int device, long id) {
  auto old = streams[device];
  if (id >= 0) streams[device] = id;
  return old;
}
void pretended_start(int number) {
  devices = number;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)].store(new Guard());
  // PyTorch has looked for its hooks at its start, and keeps the object that it found: let that one act as ours
  *(void**)(&at::detail::getCUDAHooks()) = *(void**)(new Hooks());
}
}
