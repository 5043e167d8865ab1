"""The pretended device: every rule has a line that must raise and one that must not."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from pretended_cuda import HOME, Pretended, pretended_cuda

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real device")

TWO_DEVICES = r"(same device|either on cpu)"


@pytest.fixture
def pretence():
    with pretended_cuda():
        yield


pretending = pytest.mark.usefixtures("pretence")


def here(*values: float) -> torch.Tensor:
    return torch.tensor(values or (1.0, 2.0, 3.0))


def there(*values: float) -> torch.Tensor:
    return here(*values).to("cuda")


def places(*values: int) -> torch.Tensor:
    return torch.tensor(values or (0, 2))


def assign(target: torch.Tensor, index: object, value: object) -> torch.Tensor:
    target[index] = value
    return target


MADE = {
    "factory": lambda: torch.zeros(2, device="cuda"),
    "factory-device": lambda: torch.arange(3, device=torch.device("cuda")),
    "numbers": lambda: torch.tensor([1, 2], device="cuda:0"),
    "as-tensor": lambda: torch.as_tensor(np.ones(2), device="cuda"),
    "to": lambda: here().to("cuda"),
    "to-dtype": lambda: here().to("cuda", torch.float64),
    "to-other": lambda: here().to(there()),
    "cuda": lambda: here().cuda(),
    "like": lambda: torch.full_like(there(), 2.0),
    "new": lambda: there().new_zeros(2),
    "new-tensor": lambda: there().new_tensor([1, 2]),
    "view": lambda: there().reshape(3, 1).T,
    "slice": lambda: there()[1:],
    "result": lambda: (there() + 1).cumsum(0).double(),
    "results": lambda: there().sort(descending=True).indices,
    "in-place": lambda: there().add_(1),
    "one-hot": lambda: torch.nn.functional.one_hot(places().cuda(), 4),
    "padded": lambda: torch.nn.functional.pad(there(), (0, 2)),
    "mask": lambda: ~(there() > 1),
    "number": lambda: there().sum(),
    "row": lambda: next(iter(there())),
    "places": lambda: torch.nonzero(there() > 1),
    "bits": lambda: there().view(torch.int32),
    "multinomial": lambda: torch.multinomial(there(), 1),
}


@pretending
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_what_comes_of_the_device_is_on_it(make) -> None:
    tensor = make()
    assert (tensor.device, tensor.is_cuda, tensor.is_cpu) == (HOME, True, False)
    assert tensor.cpu().device == torch.device("cpu")


@pretending
def test_a_copy_on_the_host_is_an_ordinary_copy() -> None:
    tensor = there()
    host = tensor.cpu()
    host += 1
    assert type(host) is torch.Tensor
    assert host.tolist() == [2.0, 3.0, 4.0]
    assert tensor.tolist() == [1.0, 2.0, 3.0]
    array = np.ones(2)
    torch.as_tensor(array, device="cuda").add_(1)
    assert array.tolist() == [1.0, 1.0]


@pretending
def test_views_share_their_values_with_what_they_are_views_of() -> None:
    tensor = torch.zeros(2, 3, device="cuda")
    tensor.T[1:, 1].add_(1)
    tensor[:, 0] = torch.tensor([5.0, 6.0])
    assert tensor.tolist() == [[5.0, 0.0, 0.0], [6.0, 1.0, 1.0]]


@pretending
def test_in_place_operations_return_the_tensor_itself() -> None:
    tensor = there()
    assert tensor.mul_(2) is tensor
    assert tensor.copy_(here()) is tensor


ALLOWED = {
    "one-device": lambda: there() + there(),
    "python-number": lambda: there() * 2.0 + 1,
    "cpu-number": lambda: there() + torch.tensor(2.0),
    "cpu-number-first": lambda: torch.tensor(2.0) / there(),
    "cpu-number-in-place": lambda: there().add_(torch.tensor(2.0)),
    "where-number": lambda: torch.where(there() > 1, there(), torch.tensor(0.0)),
    "where-numbers": lambda: torch.where(there() > 1, torch.tensor(1.0), torch.tensor(0.0)),
    "cpu-index": lambda: there()[places()],
    "cpu-mask": lambda: there()[torch.tensor([True, False, True])],
    "cpu-place": lambda: there()[torch.tensor(1)],
    "put-number": lambda: assign(there(), places(), torch.tensor(5.0)),
    "put": lambda: assign(there(), places(), there(1.0, 2.0)),
    "put-in-slice": lambda: assign(there(), slice(0, 2), here(1.0, 2.0)),
    "put-python": lambda: assign(there(), there() > 1, 0.0),
    "fill-number": lambda: there().masked_fill(there() > 1, torch.tensor(0.0)),
    "copy": lambda: there().copy_(here()),
}
REFUSED = {
    "add": lambda: there() + here(),
    "compare": lambda: here() < there(),
    "one-value": lambda: there() + here(1.0),
    "number-of-the-device": lambda: here() + there().sum(),
    "in-place": lambda: here().add_(there()),
    "in-place-number": lambda: torch.tensor(2.0).add_(there().sum()),
    "two-cpu-numbers": lambda: torch.clamp(there(), torch.tensor(0.0), torch.tensor(1.0)),
    "equal": lambda: torch.equal(there(), here()),
    "where-mask": lambda: torch.where(here() > 1, there(), 0.0),
    "where-value": lambda: torch.where(there() > 1, there(), here()),
    "cat": lambda: torch.cat([here(), there()]),
    "stack": lambda: torch.stack([there(), here()]),
    "index": lambda: here()[places().cuda()],
    "index-mask": lambda: here()[there() > 1],
    "index-in-tuple": lambda: here()[None, places().cuda()],
    "put-index": lambda: assign(here(), places().cuda(), 1.0),
    "put-value": lambda: assign(there(), places(), here(1.0, 2.0)),
    "put-value-back": lambda: assign(here(), places(), there(1.0, 2.0)),
    "index-select": lambda: there().index_select(0, places()),
    "gather": lambda: there().gather(0, places()),
    "scatter": lambda: there().scatter(0, places(), 1.0),
    "searchsorted": lambda: torch.searchsorted(there(), here()),
    "repeat-interleave": lambda: there().repeat_interleave(torch.tensor([1, 1, 2])),
    "fill-mask": lambda: there().masked_fill(torch.tensor([True, True, False]), 0.0),
    "matmul": lambda: there() @ here(),
    "matmul-number": lambda: there().index_add(0, places(), there(1.0, 1.0)),
}


@pretending
@pytest.mark.parametrize("made", ALLOWED.values(), ids=ALLOWED)
def test_operands_that_may_be_mixed(made) -> None:
    assert made().device == HOME


@pretending
@pytest.mark.parametrize("made", REFUSED.values(), ids=REFUSED)
def test_operands_that_may_not(made) -> None:
    with pytest.raises(RuntimeError, match=TWO_DEVICES):
        made()


@pretending
def test_a_single_place_of_the_device_is_read_and_indexes_the_host() -> None:
    assert here()[places(1).cuda()[0]].item() == 2.0
    assert here()[: places(1).cuda()[0]].tolist() == [1.0]


@pretending
def test_copies_cross_in_both_directions() -> None:
    host = torch.zeros(3)
    host.copy_(there())
    host[:1] = there(7.0)
    assert host.tolist() == [7.0, 2.0, 3.0]
    assert type(host) is torch.Tensor


NUMPY = {
    "numpy": lambda tensor: tensor.numpy(),
    "asarray": np.asarray,
    "copy": lambda tensor: np.asarray(tensor).copy(),
    "from-dlpack": np.from_dlpack,
}


@pretending
@pytest.mark.parametrize("read", NUMPY.values(), ids=NUMPY)
def test_numpy_sees_no_tensor_of_the_device(read) -> None:
    read(here())
    with pytest.raises((TypeError, BufferError), match=r"(numpy|not for the host)"):
        read(there())


@pretending
def test_numbers_are_read_across() -> None:
    tensor = there(3.0)
    assert (tensor.item(), float(tensor), int(tensor), bool(tensor)) == (3.0, 3.0, 3, True)
    assert tensor.tolist() == [3.0]
    assert list(range(places(2).cuda())) == [0, 1]
    assert f"{tensor[0]:.1f}" == "3.0"
    assert (tensor > 2).all()


GENERATORS = ["cpu", "cuda"]


@pretending
@pytest.mark.parametrize("its", GENERATORS)
@pytest.mark.parametrize("home", GENERATORS)
def test_a_generator_draws_where_it_is(its: str, home: str) -> None:
    generator = torch.Generator(its).manual_seed(3)
    assert generator.device.type == its
    if its == home:
        torch.rand(2, device=home, generator=generator)
        torch.zeros(2, device=home).exponential_(generator=generator)
        return
    said = re.escape(f"Expected a '{home}' device type for generator but found '{its}'")
    with pytest.raises(RuntimeError, match=said):
        torch.rand(2, device=home, generator=generator)
    with pytest.raises(RuntimeError, match=said):
        torch.multinomial(torch.ones(2, device=home), 1, generator=generator)


@pretending
def test_the_default_generators_are_two() -> None:
    torch.manual_seed(5)
    first = torch.rand(2)
    torch.cuda.manual_seed(5)
    of_device = torch.rand(2, device="cuda")
    second = torch.rand(2)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(2), first)
    assert torch.equal(torch.rand(2), second)
    torch.cuda.manual_seed(5)
    assert torch.equal(torch.rand(2, device="cuda"), of_device)


@pretending
@pytest.mark.parametrize("forked", [True, False])
def test_a_fork_restores_the_generators_that_it_names(forked: bool) -> None:
    torch.cuda.manual_seed(5)
    with torch.random.fork_rng(devices=[HOME] if forked else []):
        drawn = torch.rand(2, device="cuda")
    again = torch.rand(2, device="cuda")
    assert torch.equal(drawn, again) is forked


@pretending
def test_a_tensor_knows_what_it_says() -> None:
    assert repr(there(1.0)) == "tensor([1.]) on cuda:0"
    assert isinstance(there(), Pretended)


def test_nothing_is_left_of_it() -> None:
    generator, available = torch.Generator, torch.cuda.is_available
    state = torch.default_generator.get_state()
    with pretended_cuda():
        kept = there()
        torch.rand(3, device="cuda")
        assert torch.cuda.is_available()
    assert (torch.Generator, torch.cuda.is_available) == (generator, available)
    assert torch.equal(torch.default_generator.get_state(), state)
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        torch.zeros(1, device="cuda")
    with pytest.raises(RuntimeError, match="a tensor of the pretended device was kept"):
        kept + 1
