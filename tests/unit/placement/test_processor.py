import subprocess
import sys

HEAVY = ("numpy", "pandas", "pyarrow", "fastavro", "state")


def test_the_processor_imports_nothing_heavy_to_name_its_state():
    code = (
        f"import sys, trueup.streams.runtime.spark.processor; print([name for name in {HEAVY} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout == "[]\n"
