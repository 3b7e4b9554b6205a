//! Devices by name. The CPU backend is always there; GPU backends are Cargo features.

pub use burn::tensor::Device;

use crate::error::DeviceError;

/// Returns the names of the backends in this build, the default one first.
pub fn names() -> Vec<&'static str> {
    let all = [
        ("flex", true),
        ("cuda", cfg!(feature = "cuda")),
        ("wgpu", cfg!(feature = "wgpu")),
        ("vulkan", cfg!(feature = "vulkan")),
        ("metal", cfg!(feature = "metal")),
        ("rocm", cfg!(feature = "rocm")),
    ];
    all.into_iter().filter(|(_, compiled)| *compiled).map(|(name, _)| name).collect()
}

/// Opens the device called `name`: `flex` (the CPU), or `cuda`, `cuda:1`, `wgpu`, … where compiled in.
///
/// ```
/// let device = tra_nn::device::by_name("flex")?;
/// let error = tra_nn::device::by_name("abacus").unwrap_err();
/// assert!(error.to_string().contains("flex"));
/// # Ok::<(), tra_nn::Error>(())
/// ```
pub fn by_name(name: &str) -> Result<Device, crate::Error> {
    let (backend, index) = match name.split_once(':') {
        Some((backend, index)) => {
            let index = index.parse().map_err(|_| DeviceError::BadIndex(name.into()))?;
            (backend, Some(index))
        }
        None => (name, None),
    };
    let device = match (open(backend, index), names().contains(&backend)) {
        (Some(device), true) => device,
        _ => {
            let available = names().join(", ");
            return Err(DeviceError::NotCompiledIn { name: name.into(), available }.into());
        }
    };
    start(name, device)
}

#[cfg_attr(
    not(any(
        feature = "cuda",
        feature = "rocm",
        feature = "wgpu",
        feature = "vulkan",
        feature = "metal"
    )),
    allow(clippy::match_single_binding)
)]
fn open(backend: &str, index: Option<usize>) -> Option<Device> {
    #[cfg(any(feature = "wgpu", feature = "vulkan", feature = "metal"))]
    let kind = index
        .map_or(burn::tensor::DeviceKind::DefaultDevice, burn::tensor::DeviceKind::DiscreteGpu);
    match (backend, index) {
        ("flex", None) => Some(Device::flex()),
        #[cfg(feature = "cuda")]
        ("cuda", index) => Some(Device::cuda(index.unwrap_or(0))),
        #[cfg(feature = "rocm")]
        ("rocm", index) => Some(Device::rocm(index.unwrap_or(0))),
        #[cfg(feature = "wgpu")]
        ("wgpu", _) => Some(Device::wgpu(kind)),
        #[cfg(feature = "vulkan")]
        ("vulkan", _) => Some(Device::vulkan(kind)),
        #[cfg(feature = "metal")]
        ("metal", _) => Some(Device::metal(kind)),
        _ => None,
    }
}

/// Uses a device for the first time. GPU runtimes report a missing driver or adapter by panicking
/// then; it happens here, so that the user reads one line.
///
/// The panic hook, which would print more, is silent meanwhile. It belongs to the process, and Rust
/// has no other way to keep a panic from being printed; programs open a device before they start
/// other work.
fn start(name: &str, device: Device) -> Result<Device, crate::Error> {
    if name == "flex" {
        return Ok(device);
    }
    let probe = device.clone();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        burn::tensor::Tensor::<1>::ones([1], &probe).into_data();
    }));
    std::panic::set_hook(hook);
    match outcome {
        Ok(()) => Ok(device),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let reason = text.unwrap_or("no reason given").lines().next().unwrap_or_default();
            Err(DeviceError::DoesNotStart { name: name.into(), reason: reason.into() }.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_what_there_is() {
        let text = by_name("quantum").unwrap_err().to_string();
        assert!(text.contains("quantum") && text.contains("flex"), "{text}");
        assert!(by_name("flex:x").unwrap_err().to_string().contains("number"));
        assert!(by_name("flex:3").is_err(), "there is only one CPU device");
    }
}
