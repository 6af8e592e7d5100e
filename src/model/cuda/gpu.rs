//! One GPU and the stream that everything runs on: memory, launches, copies, graphs. All
//! failures become errors that name the call; a machine without a driver or a card is told
//! how to use the processor instead.

use crate::error::{Error, Result};
use cudarc::driver::{CudaContext, CudaFunction, CudaGraph, CudaSlice, CudaStream, DevicePtr, result, sys};
use std::ffi::c_void;
use std::sync::Arc;

/// A GPU, with one stream in whose order all work happens.
pub struct Gpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    /// The card's name.
    pub name: String,
    /// Compute capability, such as (9, 0).
    pub capability: (i32, i32),
}

/// Memory on the GPU, freed when dropped.
pub struct Buffer {
    slice: CudaSlice<u8>,
    pointer: u64,
}

impl Buffer {
    /// Address on the device.
    pub fn pointer(&self) -> u64 {
        self.pointer
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.slice.num_bytes()
    }
}

/// Memory of the host that the GPU copies from and to without help, freed when dropped.
pub struct Pinned<T: Copy> {
    pointer: *mut T,
    count: usize,
    context: Arc<CudaContext>,
}

// SAFETY: the memory belongs to this value alone; it has no tie to a thread.
unsafe impl<T: Copy + Send> Send for Pinned<T> {}

impl<T: Copy> std::ops::Deref for Pinned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: allocated for `count` elements and zeroed; every T used here is valid as zeros.
        unsafe { std::slice::from_raw_parts(self.pointer, self.count) }
    }
}

impl<T: Copy> std::ops::DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.count) }
    }
}

impl<T: Copy> Drop for Pinned<T> {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: allocated by `malloc_host` and freed once.
        let _ = unsafe { result::free_host(self.pointer.cast()) };
    }
}

/// One argument of a kernel.
#[derive(Clone, Copy)]
pub enum Arg<'a> {
    /// An address on the device, or 0 for null.
    At(u64),
    /// A 32-bit integer.
    Int(i32),
    /// A 64-bit integer.
    Long(u64),
    /// A float.
    Float(f32),
    /// A structure passed by value.
    Struct(&'a [u8]),
}

impl<'a> From<&'a Buffer> for Arg<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Arg::At(buffer.pointer)
    }
}

impl From<usize> for Arg<'_> {
    fn from(n: usize) -> Self {
        Arg::Int(n as i32)
    }
}

impl From<f32> for Arg<'_> {
    fn from(x: f32) -> Self {
        Arg::Float(x)
    }
}

/// Most arguments of a kernel.
const MOST_ARGS: usize = 16;

/// Turns a failure of the driver into an error that names what was being done.
pub fn failed(what: &str) -> impl FnOnce(result::DriverError) -> Error {
    let what = what.to_owned();
    move |e| {
        let hint = match e.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                "use fewer slots or a shorter context, or free the card"
            }
            _ => "run again with `--device cpu`, and report this with the card's name and driver",
        };
        Error::invalid(format!("{what} failed on the GPU: {e:?}")).hint(hint)
    }
}

const USE_CPU: &str =
    "run with `--device cpu`; with an NVIDIA card, install its driver (`nvidia-smi` must list the card)";

impl Gpu {
    /// Opens a card by its number. Without a driver or a card of that number the error says how to go on.
    pub fn open(index: usize) -> Result<Gpu> {
        let absent = |why: String| Err(Error::invalid(why).hint(USE_CPU));
        // SAFETY: only looks whether the library can be loaded.
        if !unsafe { sys::is_culib_present() } {
            return absent("no GPU can be used: the NVIDIA driver (libcuda) is not installed".into());
        }
        let count = match CudaContext::device_count() {
            Ok(count) => count,
            Err(e) => return absent(format!("no GPU can be used: the driver reports {e:?}")),
        };
        if index >= count.max(0) as usize {
            return absent(format!("there is no GPU {index}: the driver lists {count}"));
        }
        let context = CudaContext::new(index).map_err(failed("opening the card"))?;
        // SAFETY: all work goes through one stream, so no event is needed to order it.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(failed("making a stream"))?;
        Ok(Gpu {
            name: context.name().map_err(failed("asking for the card's name"))?,
            capability: context.compute_capability().map_err(failed("asking for the card's capability"))?,
            context,
            stream,
        })
    }

    /// The context, for loading modules.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Free and total memory in bytes.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let (free, total) = self.context.mem_get_info().map_err(failed("asking for free memory"))?;
        Ok((free as u64, total as u64))
    }

    /// Memory filled with zeros.
    pub fn zeros(&self, bytes: usize) -> Result<Buffer> {
        let slice = self
            .stream
            .alloc_zeros::<u8>(bytes.max(16))
            .map_err(failed(&format!("taking {} MiB", bytes >> 20)))?;
        let pointer = slice.device_ptr(&self.stream).0;
        Ok(Buffer { slice, pointer })
    }

    /// A copy of plain numbers on the device.
    pub fn upload<T: Copy>(&self, numbers: &[T]) -> Result<Buffer> {
        let buffer = self.zeros(size_of_val(numbers))?;
        self.write(&buffer, 0, numbers)?;
        Ok(buffer)
    }

    /// Writes plain numbers at an offset in bytes, and waits until they are there.
    pub fn write<T: Copy>(&self, buffer: &Buffer, offset: usize, numbers: &[T]) -> Result<()> {
        assert!(offset + size_of_val(numbers) <= buffer.bytes(), "a write stays inside its buffer");
        self.bind()?;
        // SAFETY: source and target hold that many bytes; the call below waits before `numbers` can go.
        unsafe {
            result::memcpy_htod_async(buffer.pointer + offset as u64, numbers, self.stream.cu_stream())
                .map_err(failed("copying to the card"))?;
        }
        self.wait()
    }

    /// Reads plain numbers from an offset in bytes, after everything before it is done.
    pub fn read<T: Copy + Default>(&self, buffer: &Buffer, offset: usize, count: usize) -> Result<Vec<T>> {
        let mut numbers = vec![T::default(); count];
        assert!(offset + size_of_val(&numbers[..]) <= buffer.bytes(), "a read stays inside its buffer");
        self.bind()?;
        // SAFETY: source and target hold that many bytes; the call below waits until they are written.
        unsafe {
            result::memcpy_dtoh_async(&mut numbers, buffer.pointer + offset as u64, self.stream.cu_stream())
                .map_err(failed("copying from the card"))?;
        }
        self.wait()?;
        Ok(numbers)
    }

    /// Host memory for copies that do not wait, zeroed.
    pub fn pinned<T: Copy>(&self, count: usize) -> Result<Pinned<T>> {
        self.bind()?;
        let bytes = count.max(1) * size_of::<T>();
        // SAFETY: plain allocation, zeroed before anybody reads it.
        let pointer = unsafe {
            let pointer = result::malloc_host(bytes, 0).map_err(failed("taking pinned memory"))?;
            std::ptr::write_bytes(pointer.cast::<u8>(), 0, bytes);
            pointer.cast::<T>()
        };
        Ok(Pinned { pointer, count, context: self.context.clone() })
    }

    /// Queues a copy of the first `count` elements to the device; the source must not change before [`Gpu::wait`].
    pub fn send<T: Copy>(&self, from: &Pinned<T>, to: &Buffer, count: usize) -> Result<()> {
        assert!(count * size_of::<T>() <= to.bytes(), "a copy stays inside its buffer");
        self.bind()?;
        // SAFETY: both sides hold that many bytes, and pinned memory outlives the stream's work (see `wait`).
        unsafe { result::memcpy_htod_async(to.pointer, &from[..count], self.stream.cu_stream()) }
            .map_err(failed("copying to the card"))
    }

    /// Queues a copy of `count` elements from the device; they are there after [`Gpu::wait`].
    pub fn receive<T: Copy>(&self, from: &Buffer, to: &mut Pinned<T>, count: usize) -> Result<()> {
        assert!(count * size_of::<T>() <= from.bytes(), "a copy stays inside its buffer");
        self.bind()?;
        // SAFETY: as in `send`.
        unsafe { result::memcpy_dtoh_async(&mut to[..count], from.pointer, self.stream.cu_stream()) }
            .map_err(failed("copying from the card"))
    }

    /// Waits until all queued work is done.
    pub fn wait(&self) -> Result<()> {
        self.stream.synchronize().map_err(failed("computing"))
    }

    /// Lets a kernel use more shared memory than it may without asking.
    pub fn allow_shared(&self, function: &CudaFunction, bytes: usize) -> Result<()> {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        function.set_attribute(attribute, bytes as i32).map_err(failed("asking for shared memory"))
    }

    /// Queues a kernel: `grid` blocks of `block` threads with `shared` bytes of shared memory.
    pub fn launch(
        &self,
        function: &CudaFunction,
        grid: [usize; 3],
        block: [usize; 2],
        shared: usize,
        args: &[Arg],
    ) -> Result<()> {
        assert!(args.len() <= MOST_ARGS, "a kernel has at most {MOST_ARGS} arguments");
        let mut values = [0u64; MOST_ARGS];
        let mut pointers = [std::ptr::null_mut::<c_void>(); MOST_ARGS];
        for (i, arg) in args.iter().enumerate() {
            // Little-endian: the first bytes of a number are the number in a smaller type.
            values[i] = match arg {
                Arg::At(x) | Arg::Long(x) => *x,
                Arg::Int(x) => u64::from(*x as u32),
                Arg::Float(x) => u64::from(x.to_bits()),
                Arg::Struct(_) => 0,
            };
        }
        for (i, arg) in args.iter().enumerate() {
            pointers[i] = match arg {
                Arg::Struct(bytes) => bytes.as_ptr() as *mut c_void,
                _ => (&raw mut values[i]).cast(),
            };
        }
        self.bind()?;
        let dims = |d: [usize; 3]| (d[0] as u32, d[1] as u32, d[2] as u32);
        // SAFETY: the callers in this crate pass what the kernel's signature asks for; arguments are copied by the call.
        unsafe {
            result::launch_kernel(
                function.cu_function(),
                dims(grid),
                dims([block[0], block[1], 1]),
                shared as u32,
                self.stream.cu_stream(),
                &mut pointers[..args.len()],
            )
        }
        .map_err(failed("starting a kernel"))
    }

    /// Records what `work` queues as one graph, to be started again with [`CudaGraph::launch`].
    pub fn capture(&self, work: impl FnOnce() -> Result<()>) -> Result<CudaGraph> {
        self.stream
            .begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            .map_err(failed("recording a step"))?;
        let done = work();
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = self.stream.end_capture(flags).map_err(failed("recording a step"));
        done?;
        graph?.ok_or_else(|| Error::invalid("recording a step on the GPU gave an empty graph"))
    }

    fn bind(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(failed("using the card"))
    }
}
