"""Archives of job logs, and the logs that `fetch` downloads from them.

The checksums are those of files in the developers' folder of real logs. Of logs without one, no verified copy was
available; they are fetched only if the caller accepts that. Those of the Parallel Workloads Archive belong to copies
with the archive's own gzip headers.

Files on GitHub are named by a commit of their repository, so that their content does not change.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Archive:
    """A place with job logs."""

    title: str
    base_url: str
    """URL that the paths of the logs are relative to; ends with a slash."""
    terms: str
    """What the archive asks of its users."""


@dataclass(frozen=True)
class ArchivedLog:
    """A log in an archive."""

    archive: str
    """Name of the archive, in `ARCHIVES`."""
    path: str
    """Path below the base URL of the archive."""
    sha256: str | None = None
    """Checksum of the file; None: not known."""

    @property
    def file(self) -> str:
        """The name of the file.

        >>> ARCHIVE_LOGS["kth-sp2"].file
        'KTH-SP2-1996-2.1-cln.swf.gz'
        """
        return self.path.rpartition("/")[2]


_GITHUB = "https://raw.githubusercontent.com/"

ARCHIVES: dict[str, Archive] = {
    "pwa": Archive(
        "Parallel Workloads Archive",
        "https://www.cs.huji.ac.il/labs/parallel/workload/",
        "cite D. Feitelson, D. Tsafrir, D. Krakov, JPDC 74(10), 2014, and the people named in the log's header",
    ),
    "alibaba": Archive(
        "Alibaba cluster trace of GPU nodes, 2023",
        f"{_GITHUB}alibaba/clusterdata/",
        "for research and study; cite Q. Weng et al., ATC 2023",
    ),
    "lumos": Archive(
        "Lumos: logs of ALCF and Philly",
        f"{_GITHUB}DIR-LAB/lumos/",
        "cite ALCF, and for Philly M. Jeon et al., ATC 2019 (CC-BY-4.0)",
    ),
    "nrel": Archive("NREL Eagle, sample of 1,000 jobs", f"{_GITHUB}NREL/eagle-jobs/", "BSD-3-Clause"),
    "rlscheduler": Archive(
        "RLScheduler, synthetic Lublin workload",
        f"{_GITHUB}DIR-LAB/deep-batch-scheduler/",
        "cite D. Zhang et al., SC 2020",
    ),
}
"""Archives by name."""

ARCHIVE_LOGS: dict[str, ArchivedLog] = {
    "nasa-ipsc": ArchivedLog(
        "pwa",
        "l_nasa_ipsc/NASA-iPSC-1993-3.1-cln.swf.gz",
        "5589ae9b2fb78e3bf92de097497cf33a91607de1ad54563e43533f7827597f29",
    ),
    "lanl-cm5": ArchivedLog("pwa", "l_lanl_cm5/LANL-CM5-1994-4.1-cln.swf.gz"),
    "sdsc-par-95": ArchivedLog("pwa", "l_sdsc_par/SDSC-Par-1995-3.1-cln.swf.gz"),
    "sdsc-par-96": ArchivedLog("pwa", "l_sdsc_par/SDSC-Par-1996-3.1-cln.swf.gz"),
    "ctc-sp2": ArchivedLog("pwa", "l_ctc_sp2/CTC-SP2-1996-3.1-cln.swf.gz"),
    "kth-sp2": ArchivedLog(
        "pwa",
        "l_kth_sp2/KTH-SP2-1996-2.1-cln.swf.gz",
        "3e152f201fd2e96808a735bced6ea6eb0bb07fdc447689cafb0750d87b264c0b",
    ),
    "sdsc-sp2": ArchivedLog(
        "pwa",
        "l_sdsc_sp2/SDSC-SP2-1998-4.2-cln.swf.gz",
        "e03fe48be50c4ab04d6bb2285296d9c3399e9c1f27ee79b754ad32a14abd9bac",
    ),
    "lanl-o2k": ArchivedLog("pwa", "l_lanl_o2k/LANL-O2K-1999-2.swf.gz"),
    "osc-cluster": ArchivedLog("pwa", "l_osc_cluster/OSC-Clust-2000-3.1-cln.swf.gz"),
    "sdsc-blue": ArchivedLog(
        "pwa",
        "l_sdsc_blue/SDSC-BLUE-2000-4.2-cln.swf.gz",
        "9aab21f3cfa108f3ecefa52391b384d996dcf4216f920186f47a734646b2c658",
    ),
    "sandia-ross": ArchivedLog(
        "pwa",
        "l_sandia_ross/Sandia-Ross-2001-1.1-cln.swf.gz",
        "08b390c160c41c5d3a70d66c48884b5bb68aa277506988ccdc408913342b38df",
    ),
    "hpc2n": ArchivedLog(
        "pwa", "l_hpc2n/HPC2N-2002-2.2-cln.swf.gz", "3c534857d6065cfd9cc35aac8d064c9c17172be7acf336de835006f43a626e64"
    ),
    "das2-fs0": ArchivedLog("pwa", "l_das2/DAS2-fs0-2003-1.swf.gz"),
    "das2-fs1": ArchivedLog("pwa", "l_das2/DAS2-fs1-2003-1.swf.gz"),
    "das2-fs2": ArchivedLog("pwa", "l_das2/DAS2-fs2-2003-1.swf.gz"),
    "das2-fs3": ArchivedLog("pwa", "l_das2/DAS2-fs3-2003-1.swf.gz"),
    "das2-fs4": ArchivedLog("pwa", "l_das2/DAS2-fs4-2003-1.swf.gz"),
    "sdsc-ds": ArchivedLog("pwa", "l_sdsc_ds/SDSC-DS-2004-2.1-cln.swf.gz"),
    "lpc-egee": ArchivedLog("pwa", "l_lpc/LPC-EGEE-2004-1.2-cln.swf.gz"),
    "lcg": ArchivedLog("pwa", "l_lcg/LCG-2005-1.swf.gz"),
    "sharcnet": ArchivedLog("pwa", "l_sharcnet/SHARCNET-2005-2.swf.gz"),
    "llnl-ubgl": ArchivedLog("pwa", "l_llnl_ubgl/LLNL-uBGL-2006-2.swf.gz"),
    "llnl-atlas": ArchivedLog("pwa", "l_llnl_atlas/LLNL-Atlas-2006-2.1-cln.swf.gz"),
    "llnl-thunder": ArchivedLog(
        "pwa",
        "l_llnl_thunder/LLNL-Thunder-2007-1.1-cln.swf.gz",
        "00d9bce501efd3a23cd0713bbae591516b7a69217d5f4b851725f601f3b75247",
    ),
    "ciemat-euler": ArchivedLog("pwa", "l_ciemat_euler/CIEMAT-Euler-2008-1.swf.gz"),
    "metacentrum": ArchivedLog(
        "pwa",
        "l_metacentrum/METACENTRUM-2009-2.swf.gz",
        "7c0b347e77fc7a9aafe91f96a20186a8dd16c11a51e5f19c692a93d11a64893c",
    ),
    "metacentrum2": ArchivedLog("pwa", "l_metacentrum2/METACENTRUM-2013-3.swf.gz"),
    "anl-intrepid": ArchivedLog(
        "pwa",
        "l_anl_int/ANL-Intrepid-2009-1.swf.gz",
        "ed6df6cd3cc0bb1a5650f6eb170ad1c85ea4b79d9f263ff80dba9615962cf6ce",
    ),
    "pik-iplex": ArchivedLog("pwa", "l_pik_iplex/PIK-IPLEX-2009-1.swf.gz"),
    "ricc": ArchivedLog("pwa", "l_ricc/RICC-2010-2.swf.gz"),
    "cea-curie": ArchivedLog(
        "pwa",
        "l_cea_curie/CEA-Curie-2011-2.1-cln.swf.gz",
        "2a0fdbd40837590b491bbbac7d4cfe521de1f0b14c0dc39bbf82c4e49ea75bce",
    ),
    "unilu-gaia": ArchivedLog("pwa", "l_unilu_gaia/UniLu-Gaia-2014-2.swf.gz"),
    "kit-fh2": ArchivedLog("pwa", "l_kit_fh2/KIT-FH2-2016-1.swf.gz"),
    "openb-nodes": ArchivedLog(
        "alibaba",
        "0c9677bb156ded9c63ca40d9aa54cd31d3e75061/cluster-trace-gpu-v2023/csv/openb_node_list_all_node.csv",
        "5a85c2af79c66a1efff8bbcbda430400aae56d8431370d738480967e1a9c6b15",
    ),
    "openb-default": ArchivedLog(
        "alibaba",
        "50a91c7c74abe3b658188dc78ac1dd302970d40c/cluster-trace-gpu-v2023/csv/openb_pod_list_default.csv",
        "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8",
    ),
    "openb-cpu250": ArchivedLog(
        "alibaba",
        "0c9677bb156ded9c63ca40d9aa54cd31d3e75061/cluster-trace-gpu-v2023/csv/openb_pod_list_cpu250.csv",
        "134c21ff96d57533df8a37b67632972884fec9396e77cd0898ddc370cc8e607d",
    ),
    "openb-gpushare40": ArchivedLog(
        "alibaba",
        "0c9677bb156ded9c63ca40d9aa54cd31d3e75061/cluster-trace-gpu-v2023/csv/openb_pod_list_gpushare40.csv",
        "d83ce79a4eb6987524bedbb0c65e41aed3a36bf6c1b78b86234c3687a07e1d40",
    ),
    "openb-gpuspec33": ArchivedLog(
        "alibaba",
        "b937928cf81f0edb6fe33634d01f2069a8d6ab17/cluster-trace-gpu-v2023/csv/openb_pod_list_gpuspec33.csv",
        "eca4f746db1e5b25864ad021b55ece3943e101a3ebd4574d09dcb95c46117652",
    ),
    "openb-multigpu50": ArchivedLog(
        "alibaba",
        "b937928cf81f0edb6fe33634d01f2069a8d6ab17/cluster-trace-gpu-v2023/csv/openb_pod_list_multigpu50.csv",
        "206f2f5959db30ecb7c44e7f13197c8ec50b7a35558ad3777cc3662ef0fe5373",
    ),
    "lumos-thetagpu": ArchivedLog(
        "lumos",
        "5036d4ea5d1d761977ae81c192aed576b04e8c1e/lumos-site/data/data_thetagpu.csv",
        "311d5970796032a9a80d045bca4efed8466972e08e95aaa5d73451cbba54c2d3",
    ),
    "lumos-philly": ArchivedLog(
        "lumos",
        "cdbce3c5c03d93c415a248de031a3957d06ef10b/lumos-site/data/philly_df_schedule.csv",
        "fb6bcdb4a1680e0ca574fffc8b266ddf8d05e7606613e87088540f8115d0119d",
    ),
    "eagle-sample": ArchivedLog(
        "nrel",
        "ef34f9fa5edabb04b460dcf58929b841555a2e2d/data/sample_eagle_data.csv",
        "848e8dd418dfd5efcb4897c054489c21e0022ced637a6954216aa878e03bb513",
    ),
    "lublin-256": ArchivedLog(
        "rlscheduler",
        "c649e852ab3cabbc5ac8e4f46b81b1dd66625831/data/lublin_256.swf",
        "a394ab3d81179ebcf645a1cbd593a60b6dff7f11a510e1e6285c45f43310c962",
    ),
}
"""Logs by name."""
